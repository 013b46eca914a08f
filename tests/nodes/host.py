"""A throw-away machine with a real systemd: an overlay of this machine's root, or of another, booted by systemd-nspawn.

It has its own network (loopback only), its own /root and a tmpfs as /fsx, and ends with the process that booted it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

BOOT_TIMEOUT_S = 90  # two seconds on a quiet machine
TRACE_INSIDE = "/dev/slipway-trace"  # below /dev: units with ProtectSystem=strict may write there too
TRACE: Path | None = None
"""A folder with trace.sh as `env.sh` and a file `trace`, while the coverage of bash is measured (conftest.py)."""
# exec: the process that unshare forked becomes nspawn, so that nspawn's first child is the machine's init.
_BOOT = r"""
set -eu
work=$1 trace=()
mount -t tmpfs -o size=2g slipway-test "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=$4,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount -t tmpfs run /run
mkdir -p /run/netns /run/lock "$work/root/fsx"
ip netns add test
ip netns exec test ip link set lo up
: >"$work/root/etc/machine-id"
echo head >"$work/root/etc/hostname"
mkdir -p "$work/root/etc/systemd/system"
printf '[Unit]\nRequires=basic.target\nAfter=basic.target\nAllowIsolate=yes\n' >"$work/root/etc/systemd/system/test-host.target"
mkdir -p "$work/root/etc/systemd/system-generators"
for generator in "$work"/root/{usr/,}lib/systemd/system-generators/*; do # no unit comes from one, and each reload runs all
  ln -sf /dev/null "$work/root/etc/systemd/system-generators/${generator##*/}"
done
rm -rf "$work/root/etc/prometheus" "$work"/root/{etc,opt,var/lib,var/cache,var/log}/slipway
if [ -n "$2" ]; then
  trace=(--bind="$2:$3")
  mkdir -p "$work/root/etc/systemd/system.conf.d"
  printf '[Manager]\nDefaultEnvironment=BASH_ENV=%s/env.sh\n' "$3" >"$work/root/etc/systemd/system.conf.d/trace.conf"
fi
exec systemd-nspawn --quiet --directory="$work/root" --machine=head --hostname=head --register=no --keep-unit \
  --network-namespace-path=/run/netns/test --console=pipe --link-journal=no --tmpfs=/root --tmpfs=/fsx:mode=755 \
  --capability=all ${trace[@]+"${trace[@]}"} --boot -- --unit=test-host.target
"""


def missing() -> str:
    """Return why no machine can be booted here, or an empty text."""
    if os.geteuid() != 0:
        return "needs root"
    for tool in ("systemd-nspawn", "unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    return ""


class Host:
    """One booted machine.

    Args:
        work: an empty directory; a tmpfs is mounted over it, in the machine's own mount namespace only.
        root: the directory that the machine's root is an overlay of; nothing in it is changed.
    """

    def __init__(self, work: Path, root: Path = Path("/")) -> None:
        command = ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
        command += ["--propagation", "private", "bash", "-c", _BOOT, "boot", str(work)]
        command += [str(TRACE or ""), TRACE_INSIDE, str(root)]
        self.log = work.with_suffix(".log")
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._leader = self._wait_leader()
        except BaseException:
            self.close()
            raise

    def _wait_leader(self) -> int:
        end = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < end and self._process.poll() is None:
            nspawn = _children(self._process.pid)
            leader = _children(nspawn[0]) if nspawn else []
            if leader:
                self._leader = leader[0]
                if self.run("systemctl is-active --quiet test-host.target", check=False).returncode == 0:
                    return self._leader
            time.sleep(0.05)
        raise RuntimeError(f"the machine did not boot: {self.log.read_text(errors='replace')[-2000:]}")

    def command(self, script: str) -> list[str]:
        """Return the argument vector that runs a bash script as root inside."""
        enter = ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--"]
        clean = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]
        traced = [f"BASH_ENV={TRACE_INSIDE}/env.sh"] if TRACE else []
        return [*enter, *clean, "LANG=C.UTF-8", *traced, "bash", "-c", script]

    def run(self, script: str, *, check: bool = True, timeout: float = 90) -> subprocess.CompletedProcess[str]:
        """Run a bash script as root inside; its standard error is part of the output."""
        done = subprocess.run(
            self.command(script),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check:
            assert done.returncode == 0, f"exit {done.returncode}: {script}\n{done.stdout}"
        return done

    def put(self, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file inside."""
        script = f"mkdir -p '{Path(path).parent}' && cat >'{path}' && chmod {mode:o} '{path}'"
        subprocess.run(self.command(script), input=content, check=True, timeout=60)

    def close(self) -> None:
        """End the machine with everything in it (its first process is the first of a process-id namespace)."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=30)

    def snapshot(self, *skip: str) -> dict[str, str]:
        """Return path -> facts of what a set-up may change, without its records.

        Facts: kind, mode, owner, target of a link, size, inode, time of the last change: content cannot change without.
        """
        pruned = [
            "/var/log/slipway",
            "/var/lib/slipway/steps",
            "/var/lib/slipway/background",
            "/var/lib/slipway/health.json",
            "/var/lib/slipway/topology.json",
            "/var/lib/prometheus/slipway",
            *skip,
        ]
        prune = " -o ".join(f"-path {path}" for path in pruned)
        roots = "/etc /opt/slipway /usr/local /var/lib/slipway /var/lib/prometheus /var/cache/slipway /fsx"
        script = rf"find {roots} \( {prune} \) -prune -o -printf '%p\t%y %m %u:%g %l %s %i %T@\n'"
        return dict(line.split("\t", 1) for line in self.run(script).stdout.splitlines())


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
