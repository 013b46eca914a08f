"""The unit that builds nccl-tests in the background, and `acceptance`, which waits for it."""

from __future__ import annotations

import json

import pytest

from . import nccl_host
from .host import Host
from .nccl_host import INSTALL, LOG, STATE, setting

pytestmark = pytest.mark.hosts
STEP = "/opt/slipway/current/headnode/steps/55-nccl.sh"
RUN = "acceptance run --scenario x"
MEASURED = "acceptance of the tests\n"  # the output of the program's stand-in
ENDED = (
    f"for i in $(seq 800); do grep -q -e '\"done\"' -e '\"failed\"' {STATE} && ! systemctl is-active --quiet slipway-nccl "
    "&& exit 0; sleep 0.1; done; exit 1"
)


@pytest.fixture(scope="module")
def head(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Host:
    nccl_host.prepare(host, tmp_path_factory.mktemp("nccl"))
    host.run("cp /opt/slipway/current/headnode/acceptance /usr/local/bin/acceptance")
    return host


@pytest.fixture(autouse=True)
def _fresh(head: Host) -> None:
    head.run("systemctl stop slipway-nccl 2>/dev/null; rm -f /usr/local/cuda/bin/nvcc.real", check=False)
    nccl_host.reset(head)


def background(head: Host, **values: str) -> dict[str, str]:
    """Run the step and wait for its unit; returns the state that it left."""
    setting(head, **values)
    head.run(STEP)
    head.run(ENDED, timeout=90)
    found: dict[str, str] = json.loads(head.run(f"cat {STATE}").stdout)
    return found


def test_nccl_tests_are_built_for_acceptance_where_the_image_has_none(head: Host) -> None:
    found = background(head, ACCEPTANCE_SCENARIO="all-reduce")
    assert (found["state"], found["detail"]) == (
        "done",
        "NCCL 2.28.7-1 and nccl-tests for acceptance in /fsx/nccl/versions/2.28.7-1_tests",
    )
    head.run("test -x /opt/nccl-tests/build/all_reduce_perf")
    assert head.run("ls /fsx/nccl/setup-nccl-env.sh /fsx/nccl/current", check=False).returncode == 2
    assert head.run("systemctl is-enabled slipway-nccl").stdout == "enabled\n"
    assert "slipway: background nccl done" in head.run("cat /var/log/slipway/setup.log").stdout
    assert head.run(RUN).stdout == MEASURED
    # At the next start of the head node there is nothing to build.
    head.run(f"systemctl start slipway-nccl; {ENDED}")
    assert "building" not in head.run("cat /var/log/slipway/nccl-install.log").stdout


@pytest.mark.parametrize(
    ("values", "detail"),
    [
        ({"ACCEPTANCE_SCENARIO": "none"}, "acceptance is off: no nccl-tests are needed"),
        ({"ACCEPTANCE_SCENARIO": "all-reduce", "NCCL_GPU_ARCHS": ""}, "no queue has GPUs: nothing to build"),
    ],
)
def test_nothing_is_built_where_nothing_is_needed(head: Host, values: dict[str, str], detail: str) -> None:
    found = background(head, **values)
    assert (found["state"], found["detail"]) == ("done", detail)


def test_nccl_tests_of_the_image_are_taken(head: Host) -> None:
    head.run("mkdir -p /opt/nccl-tests/build; install -m 755 /bin/true /opt/nccl-tests/build/all_reduce_perf")
    found = background(head, ACCEPTANCE_SCENARIO="all-reduce")
    assert found["detail"] == "the image has nccl-tests: /opt/nccl-tests/build"


def test_the_settings_versions_are_installed_once_and_a_hand_made_choice_stays(head: Host) -> None:
    nccl_host.mirror(head, {**nccl_host.VERSIONS, "nccl": "2.27.7-1"})
    sums = head.run("cat /srv/s3/mirror/SHA256SUMS").stdout
    nccl_host.mirror(head, nccl_host.VERSIONS)
    both = sums + head.run("cat /srv/s3/mirror/SHA256SUMS").stdout
    head.put("/srv/s3/mirror/SHA256SUMS", both.encode())
    found = background(head, NCCL_SOURCE="shared")
    assert found["detail"] == "NCCL 2.28.7-1 with the plugin 1.17.2 in /fsx/nccl/versions/2.28.7-1_1.17.2"
    head.run(f"{INSTALL} v2.27.7-1 v1.17.2 /fsx")
    found = background(head, NCCL_SOURCE="shared")
    assert found["detail"] == "the settings' versions were installed; in use: v2.27.7-1"
    assert head.run("cat /fsx/nccl/.nccl_version").stdout == "v2.27.7-1\n"


def test_a_build_that_fails_leaves_its_words_and_acceptance_repeats_them(head: Host) -> None:
    head.run("rm /srv/s3/mirror/nccl-2.28.7-1.tar.gz; sed -i /nccl-2.28/d /srv/s3/mirror/SHA256SUMS")
    found = background(head, ACCEPTANCE_SCENARIO="all-reduce")
    assert found["state"] == "failed"
    assert found["detail"] == "s3://mirror/SHA256SUMS has no line of nccl-2.28.7-1.tar.gz"
    assert found["hint"] == "add nccl-2.28.7-1.tar.gz to the mirror; then: sudo systemctl restart slipway-nccl"
    done = head.run(f"{RUN} 2>/srv/errors", check=False)
    assert done.returncode == 3
    assert done.stdout == (
        f"[RESULT] FAILURE: nothing was measured: the build of nccl-tests failed: {found['detail']}; log: {LOG}. Hint: {found['hint']}\n"
    )
    done = head.run(f"{RUN} --json 2>/srv/errors", check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "[RESULT] FAILURE" in head.run("cat /srv/errors").stdout
    # What does not measure does not need them.
    assert head.run("acceptance list").stdout == MEASURED


def test_tests_that_are_there_are_good_enough(head: Host) -> None:
    head.run("mkdir -p /opt/nccl-tests/build; install -m 755 /bin/true /opt/nccl-tests/build/all_reduce_perf")
    head.put(STATE, json.dumps({"state": "failed", "detail": "no way", "log": LOG, "hint": "x"}).encode())
    out = head.run(RUN).stdout
    assert (
        "acceptance: WARNING the build of nccl-tests failed: no way; going on with the nccl-tests that are there" in out
    )
    assert out.endswith(MEASURED)


def test_acceptance_waits_for_a_build_under_way_and_says_so(head: Host) -> None:
    head.run("mv /usr/local/cuda/bin/nvcc /usr/local/cuda/bin/nvcc.real; mkfifo /srv/gate")
    head.put(
        "/usr/local/cuda/bin/nvcc",
        b'#!/bin/bash\n[[ " $* " != *" -c "*device.cu* ]] || { : >/srv/building; cat /srv/gate; }\nexec /usr/local/cuda/bin/nvcc.real "$@"\n',
        0o755,
    )
    setting(head, ACCEPTANCE_SCENARIO="all-reduce", ACCEPTANCE_BUILD_WAIT_S="2")
    head.run(f"{STEP}; for i in $(seq 800); do [ ! -e /srv/building ] || break; sleep 0.1; done")
    late = head.run(RUN, check=False)
    setting(head, ACCEPTANCE_SCENARIO="all-reduce", ACCEPTANCE_BUILD_WAIT_S="90")
    out = head.run(
        f"({RUN} >/srv/out 2>&1; echo $? >>/srv/out) & for i in $(seq 300); do grep -qs waiting /srv/out && break; sleep 0.1; done; "
        "cp /srv/out /srv/before; : >/srv/gate; wait; cat /srv/before; echo ---; cat /srv/out"
    ).stdout
    head.run("mv /usr/local/cuda/bin/nvcc.real /usr/local/cuda/bin/nvcc; rm /srv/gate /srv/building")
    assert late.returncode == 3
    assert (
        "nothing was measured: nccl-tests are not built after 2 s more (building NCCL 2.28.7-1 for sm_90" in late.stdout
    )
    before, after = out.split("---\n")
    assert before.startswith("acceptance: waiting for ")
    assert MEASURED not in before
    assert after.endswith(f"{MEASURED}0\n")


def test_a_build_that_was_interrupted_is_not_waited_for(head: Host) -> None:
    head.put(STATE, json.dumps({"state": "running", "detail": "building NCCL", "log": LOG, "hint": ""}).encode())
    head.run("mkdir -p /run/slipway; touch /run/slipway/nccl.lock")
    done = head.run(RUN, check=False)
    assert done.returncode == 3
    assert "the build of nccl-tests was interrupted (building NCCL)" in done.stdout
