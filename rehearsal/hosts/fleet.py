"""The hosts of one rehearsal: booted, joined to a Slurm cluster, slowed down on purpose, ended one by one, stopped.

Runs in the engine's namespaces (own mounts with private propagation, a tmpfs on /run, own PIDs, own network): what a
killed engine leaves behind is empty control groups, and `cgroups.sweep` removes them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rehearsal.host_spec import HostSpec
from rehearsal.hosts import cgroups, image, slurm
from rehearsal.hosts.commands import run
from rehearsal.hosts.errors import BootFailed, HostsError, MachineUnfit, SlurmNotReady
from rehearsal.hosts.host import Host, entering
from rehearsal.hosts.network import Network

BOOT_TIMEOUT_S = 60.0
LINK_RATE_MBIT = 200.0
DISK_MIB = 2048
AWS_PORT = 5000
_STANDINS = Path(__file__).resolve().parent.parent / "standins"
_NEEDED = ("systemd-nspawn", "nsenter", "ip", "tc", "mount", "umount", "slurmctld", "slurmd", "munged", "mpirun")
_TAIL_LINES = 15
_POLL_S = 0.02


class Fleet:
    """All hosts of one rehearsal.

    run_dir: a directory of this rehearsal (the hosts' files live on a bounded tmpfs below it); cidr, gateway_ip: the
    network of the hosts and the engine's address in it; tools_dir: what rehearsal/standins/setup.sh made; mounts:
    absolute paths at which every host has one shared directory each, in addition to /fsx and /home; run_id: names the
    control groups; has_metadata: the engine answers as the instance metadata service, which gives hosts credentials.

    Several threads may boot and end hosts at the same time, each its own; after `stop` no host boots any more.
    """

    def __init__(
        self,
        run_dir: Path,
        cidr: str,
        gateway_ip: str,
        *,
        tools_dir: Path,
        cluster: str = "rehearsal",
        region: str = "us-east-1",
        link_rate_mbit: float | None = LINK_RATE_MBIT,
        disk_mib: int = DISK_MIB,
        aws_port: int = AWS_PORT,
        mounts: Sequence[str] = (),
        run_id: str = "",
        has_metadata: bool = False,
    ) -> None:
        self._dir = run_dir / "hosts"
        self._tools = tools_dir.resolve()
        self._network = Network(cidr, gateway_ip)
        self._link_rate_mbit = link_rate_mbit
        self._disk_mib = disk_mib
        self._places = {"slurm": "/opt/slurm", "home": "/home", "fsx": "/fsx"}
        self._places |= {f"mount{number}": path for number, path in enumerate(mounts, start=1)}
        self._groups = cgroups.Groups(run_id or secrets.token_hex(6))
        endpoint = f"http://{gateway_ip}:{aws_port}"
        self._facts = image.ClusterFacts(cluster, region, endpoint, secrets.token_bytes(128), has_metadata)
        self._started = False
        self._stopped = False
        self._lock = threading.RLock()
        self._machines: dict[str, subprocess.Popen[bytes]] = {}
        self._specs: dict[str, HostSpec] = {}  # of every host that has a place here, booted or not
        self.hosts: dict[str, Host] = {}

    @property
    def group(self) -> str:
        """The name of this fleet's control groups."""
        return self._groups.name

    @property
    def head(self) -> Host:
        """The head node. HostsError: none is booted."""
        for host in list(self.hosts.values()):
            if host.spec.role == "head":
                return host
        raise HostsError("no head node is booted")

    @property
    def computes(self) -> list[Host]:
        """The compute hosts, in the order they were asked for."""
        return [host for host in list(self.hosts.values()) if host.spec.role == "compute"]

    @property
    def power_socket(self) -> Path:
        """Where the head node's power saving programs look for the engine (on the head node: image.POWER_SOCKET)."""
        return self._shared("power") / Path(image.POWER_SOCKET).name

    def boot(self, *specs: HostSpec, timeout_s: float = BOOT_TIMEOUT_S) -> list[Host]:
        """Boot these hosts at the same time and wait until each is up; call again to add compute hosts.

        The first call must have the head node among them. BootFailed names the first host that did not come up.
        """
        with self._lock:
            if self._stopped:
                raise HostsError(
                    f"{', '.join(spec.name for spec in specs)}: the rehearsal ends, no host boots any more"
                )
            head = self._find_head(specs)
            if not self._started:
                self._start()
            self._specs |= {spec.name: spec for spec in specs}
            self._name_hosts()
            for spec in specs:
                self._network.plug(spec.name, spec.ip)
                if spec.role == "compute" and self._link_rate_mbit is not None:
                    self._network.shape(spec.name, self._link_rate_mbit)
                self._mount_root(spec, head)
            begin = time.monotonic()
            machines = {spec.name: self._spawn(spec) for spec in specs}
            self._machines |= machines
        for spec in specs:
            leader = self._wait_up(spec, machines[spec.name], begin + timeout_s)
            self.hosts[spec.name] = Host(spec, leader, self._groups, time.monotonic() - begin)
        return [self.hosts[spec.name] for spec in specs]

    def kill(self, name: str) -> None:
        """End a host's processes at once, also while it boots; its files stay until `end`. No host: nothing to do."""
        machine = self._machines.get(name)
        if machine is not None:
            _kill_machine(machine)

    def end(self, name: str) -> None:
        """End one host and free all that it held: processes, memory, files, control groups, network port and name."""
        self.kill(name)
        with self._lock:
            if self._stopped:
                return
            _unmount(self._root(name) / "merged")
            shutil.rmtree(self._root(name), ignore_errors=True)
            self._groups.remove_host(name)
            self._network.unplug(name)
            for known in (self._machines, self._specs, self.hosts):
                known.pop(name, None)
            self._name_hosts()

    def write_slurm(
        self,
        site: slurm.Parameters = slurm.NONE,
        *,
        nodes: Sequence[HostSpec] | None = None,
        power: slurm.PowerSaving = slurm.POWER,
    ) -> None:
        """Write /opt/slurm as ParallelCluster lays it out, queues in the order of `nodes`.

        nodes: the compute hosts, also dynamic ones that are not booted yet; None: those booted so far.
        """
        specs = [host.spec for host in self.computes] if nodes is None else nodes
        slurm.write_tree(self._shared("slurm"), self._facts.cluster, self.head.spec, specs, site, power)

    def start_slurm(self, *hosts: Host, timeout_s: float = 30) -> None:
        """Start munge and Slurm's services on these hosts (default: all); the head node first."""
        chosen = sorted(hosts or self.hosts.values(), key=lambda host: host.spec.role != "head")
        heads = [host for host in chosen if host.spec.role == "head"]
        others = [host for host in chosen if host.spec.role != "head"]
        for host in heads:
            _start_service(host, "slurmctld", timeout_s)
            _wait_controller(host, timeout_s)
        with ThreadPoolExecutor(max_workers=4) as pool:
            for done in [pool.submit(_start_service, host, "slurmd", timeout_s) for host in others]:
                done.result()

    def wait_idle(self, timeout_s: float) -> None:
        """Wait until every static compute host is idle in Slurm. SlurmNotReady: what the others are, and why."""
        wanted = {host.name for host in self.computes if not host.spec.dynamic}
        deadline = time.monotonic() + timeout_s
        while True:
            idle = self.head.exec(["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"], timeout_s=20)
            missing = sorted(wanted - set(idle.stdout.split()))
            if not missing:
                return
            if time.monotonic() > deadline:
                raise SlurmNotReady(self._why_not_idle(missing, timeout_s))
            time.sleep(0.2)

    def throttle(self, host: Host | str, rate_mbit: float | None) -> None:
        """Bound a host's link to rate_mbit in each direction; None takes every bound away."""
        name = host if isinstance(host, str) else host.name
        if name not in self.hosts:
            raise HostsError(f"{name}: no such host; there are {', '.join(self.hosts)}")
        self._network.shape(name, rate_mbit)

    def console_tail(self, name: str, lines: int = _TAIL_LINES) -> str:
        """The last lines of a host's console."""
        try:
            text = self._console(name).read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(line for line in text.replace("\r", "").splitlines()[-lines:])

    def stop(self) -> None:
        """End every host and remove all that was made; safe to call twice, and after a boot that failed."""
        with self._lock:
            self._stopped = True
            self._stop()

    def _stop(self) -> None:
        for machine in self._machines.values():
            _kill_machine(machine)
        self._machines.clear()
        for spec_dir in sorted(self._dir.glob("roots/*/merged")):
            _unmount(spec_dir)
        self._groups.remove()
        if self._started:
            self._network.stop()
            _unmount(self._dir)
            self._started = False
        with contextlib.suppress(OSError):
            self._dir.rmdir()
        self.hosts.clear()
        self._specs.clear()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _find_head(self, specs: Sequence[HostSpec]) -> HostSpec:
        known = [*self._specs.values(), *specs]
        heads = [spec for spec in known if spec.role == "head"]
        if len(heads) != 1:
            raise HostsError(
                f"{len(heads)} head nodes among {', '.join(spec.name for spec in known)}: exactly one is needed"
            )
        for key in ("name", "ip"):
            values = [getattr(spec, key) for spec in known]
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise HostsError(f"two hosts have the {key} {', '.join(twice)}")
        return heads[0]

    def _start(self) -> None:
        """The tmpfs, the shared directories and the bridge."""
        check_machine(self._tools)
        self._dir.mkdir(parents=True, exist_ok=True)
        run(["mount", "-t", "tmpfs", "-o", f"size={self._disk_mib}m,mode=755", "slipway-hosts", str(self._dir)])
        self._started = True
        for name in self._places:
            self._shared(name).mkdir(parents=True)
        self._shared("fsx").chmod(0o1777)
        self._shared("power").mkdir()
        user_home = self._shared("home") / image.CLUSTER_USER
        user_home.mkdir(mode=0o750)
        os.chown(user_home, image.CLUSTER_UID, image.CLUSTER_UID)
        self._network.start()

    def _shared(self, name: str) -> Path:
        return self._dir / "shared" / name

    def _root(self, name: str) -> Path:
        return self._dir / "roots" / name

    def _console(self, name: str) -> Path:
        return self._dir / "consoles" / f"{name}.log"

    def _name_hosts(self) -> None:
        """One /etc/hosts for all, written in place: every host sees the hosts that come and go later.

        It is never empty for a moment, as it would be if it were cut first: names are looked up at any time.
        """
        lines = ["127.0.0.1 localhost", f"{self._network.gateway_ip} aws.rehearsal"]
        lines += [f"{spec.ip} {spec.name}" for spec in self._specs.values()]
        place = self._dir / "shared/etc-hosts"
        if not place.exists():
            image.write(place, b"")
        with place.open("r+b", buffering=0) as names:
            names.truncate(names.write(("\n".join(lines) + "\n").encode()))

    def _mount_root(self, spec: HostSpec, head: HostSpec) -> None:
        root = self._root(spec.name)
        for name in ("upper", "work", "merged"):
            (root / name).mkdir(parents=True)
        image.build_upper(root / "upper", spec, head, self._facts, _STANDINS)
        options = f"lowerdir=/,upperdir={root}/upper,workdir={root}/work"
        run(["mount", "-t", "overlay", "slipway-host", "-o", options, str(root / "merged")])
        (root / "dev").mkdir()
        for number in range(spec.gpus):  # what opens them gets nothing: the numbers are those of /dev/null
            device = root / "dev" / f"nvidia{number}"
            os.mknod(device, 0o020666, os.makedev(1, 3))
            device.chmod(0o666)

    def _spawn(self, spec: HostSpec) -> subprocess.Popen[bytes]:
        root = self._root(spec.name)
        argv = [
            "systemd-nspawn", "--quiet", f"--directory={root / 'merged'}",
            f"--machine={spec.name}", f"--hostname={spec.name}",
            "--register=no", "--keep-unit", "--settings=no", "--console=pipe", "--link-journal=no", "--timezone=off",
            "--resolv-conf=off", f"--network-namespace-path=/run/netns/{spec.name}", *self._binds(spec, root),
            "--boot", "--", f"--unit={image.TARGET}", "--log-target=console", "--show-status=no",
        ]  # fmt: skip
        self._console(spec.name).parent.mkdir(exist_ok=True)
        with self._console(spec.name).open("wb") as console:
            return subprocess.Popen(
                entering(self._groups.make(spec.name), argv),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={"PATH": image.PROFILE_PATH, "LANG": "C.UTF-8"},
                start_new_session=True,
            )

    def _binds(self, spec: HostSpec, root: Path) -> list[str]:
        binds = [f"--bind={self._shared(name)}:{place}" for name, place in self._places.items()]
        binds.append(f"--bind-ro={self._dir / 'shared/etc-hosts'}:/etc/hosts")
        binds.append(f"--bind-ro={self._tools / 'aws'}:{image.AWS_TOOL_DIR}")
        binds.append(f"--bind-ro={self._tools / 'nccl-tests'}:{image.NCCL_TESTS_DIR}")
        binds.append(f"--bind-ro={self._tools / 'pyxis'}:/usr/local/lib/slurm")
        binds += [f"--bind-ro={self._tools / 'image' / place}:/{place}" for place in image.IMAGE_PLACES]
        binds += [f"--bind={root / 'dev' / f'nvidia{number}'}:/dev/nvidia{number}" for number in range(spec.gpus)]
        if spec.role == "head":
            binds.append(f"--bind={self._shared('power')}:{Path(image.POWER_SOCKET).parent}")
        return binds

    def _wait_up(self, spec: HostSpec, machine: subprocess.Popen[bytes], deadline: float) -> int:
        """The process id of the host's systemd, once its target is reached."""
        while True:
            if machine.poll() is not None:
                raise BootFailed(
                    spec.name, f"systemd-nspawn ended with {machine.returncode}", self.console_tail(spec.name)
                )
            for child in _children(machine.pid):
                if Path(f"/proc/{child}/root", image.READY_MARK).exists():
                    return child
            if time.monotonic() > deadline:
                raise BootFailed(spec.name, f"not up after {BOOT_TIMEOUT_S:.0f} s", self.console_tail(spec.name))
            time.sleep(_POLL_S)

    def _why_not_idle(self, missing: list[str], timeout_s: float) -> str:
        reasons = self.head.exec(["sinfo", "-N", "-h", "-o", "%N is %T: %E"], timeout_s=20)
        lines = [line for line in (reasons.stdout or reasons.stderr).splitlines() if line.split()[2:3] != ["idle:"]]
        log = self.hosts[missing[0]].exec(["tail", "-n", "8", "/var/log/slurmd.log"], timeout_s=20).stdout
        detail = "\n".join(lines)
        return (
            f"after {timeout_s:.0f} s not idle in Slurm: {', '.join(missing)}\n{detail}\n"
            f"Last lines of slurmd on {missing[0]}:\n{log.rstrip()}"
        )


def check_machine(tools_dir: Path) -> None:
    """MachineUnfit: all that this machine lacks to carry local hosts, at once."""
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root (mounts and namespaces)")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    lacks += [f"the program {name}" for name in _NEEDED if shutil.which(name, path=path) is None]
    lacks += [
        f"{tools_dir / name}" for name in ("aws", "nccl-tests", "pyxis", "image") if not (tools_dir / name).is_dir()
    ]
    separate = [place for place in ("/usr", "/etc", "/var", "/lib") if os.path.ismount(place)]
    lacks += [f"{place} on the same file system as / (it is the lower layer of the hosts' roots)" for place in separate]
    if lacks:
        raise MachineUnfit(
            f"this machine lacks: {'; '.join(lacks)}. Hint: `make setup` as root installs the packages and "
            "makes the tools; without root use --cloud-only"
        )


def _start_service(host: Host, service: str, timeout_s: float) -> None:
    done = host.exec(["systemctl", "start", "munge", service], timeout_s=timeout_s)
    if done.ok:
        return
    status = host.exec(["systemctl", "--no-pager", "--lines=8", "status", "munge", service], timeout_s=20)
    detail = (done.stderr + status.stdout).strip() or "(systemd printed no reason)"
    raise SlurmNotReady(f"{host.name}: {service} did not start (exit {done.rc}):\n{detail}")


def _wait_controller(host: Host, timeout_s: float) -> None:
    """Wait until slurmctld answers; if a parameter of the site ended it, its last log lines are reported."""
    deadline = time.monotonic() + timeout_s
    while " is UP" not in host.exec(["scontrol", "ping"], timeout_s=20).stdout:
        is_running = host.exec(["systemctl", "is-active", "--quiet", "slurmctld"], timeout_s=20).ok
        if not is_running or time.monotonic() > deadline:
            log = host.exec(["tail", "-n", "8", "/var/log/slurmctld.log"], timeout_s=20).stdout.rstrip()
            state = f"no answer after {timeout_s:.0f} s" if is_running else "it ended"
            raise SlurmNotReady(
                f"{host.name}: slurmctld did not start: {state}. Last lines of its log:\n{log or '(none)'}"
            )
        time.sleep(_POLL_S)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _kill_machine(machine: subprocess.Popen[bytes]) -> None:
    """End a host: its systemd first (all of the host ends with it), then nspawn."""
    for child in _children(machine.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, 9)
    try:
        machine.wait(timeout=3)
    except subprocess.TimeoutExpired:
        machine.kill()
        machine.wait()


def _unmount(place: Path) -> None:
    """Unmount; a mount still busy for a moment is tried again, then detached."""
    if not os.path.ismount(place):
        return
    for _ in range(25):
        with contextlib.suppress(HostsError):
            run(["umount", str(place)])
            return
        time.sleep(0.04)
    run(["umount", "--lazy", str(place)])
