"""A clock that is set between two runs of the health checks: no line of the kernel may be lost by it."""

from __future__ import annotations

import time

import pytest

from .test_health import KERNEL, XIDS, FakeNode, node

__all__ = ["node"]


@pytest.mark.parametrize("step_s", [-7200.0, 7200.0])
def test_after_the_clock_was_set_the_whole_kernel_log_is_read(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    node.say("journalctl", 'echo "$@" >>arguments; case "$*" in *--since*) ;; *) cat kernel.log ;; esac')
    node.write("kernel.log", "")
    node.run()
    node.run()
    true = time.time
    monkeypatch.setattr(time, "time", lambda: true() + step_s)
    node.write("kernel.log", KERNEL.format(n=0) + XIDS[0][0] + "\n")
    assert node.check("gpu-xid")["status"] == "fail"
    node.run()
    calls = (node.root / "arguments").read_text().splitlines()
    # The evidence of a node to drain asks journalctl too, in another format.
    bounds = ["--since=@" in line for line in calls if "--output=short-unix" in line]
    assert bounds == [False, True, False, True]
