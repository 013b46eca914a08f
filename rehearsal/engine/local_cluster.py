"""The local hosts of one cluster: booted, set up by the nodes' own custom actions, and joined by Slurm."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rehearsal.cloud.metadata import MetadataService
from rehearsal.engine.clustermgtd import Clustermgtd
from rehearsal.engine.configuration import Node, host_spec, judged_nodes, mounts_of, parameters_of, power_saving
from rehearsal.engine.dynamic import DynamicNodes
from rehearsal.engine.instances import Instance, Instances
from rehearsal.engine.progress import Progress
from rehearsal.engine.scale import SITE_FILE, site_file
from rehearsal.engine.specification import TOOLS, Specification
from rehearsal.engine.static import StaticNodes
from rehearsal.host_spec import NO_ADDRESS
from rehearsal.hosts import Fleet, Host, HostsError, slurm
from rehearsal.hosts.actions import run_custom_actions
from rehearsal.hosts.breakage import inject
from rehearsal.hosts.errors import failure_line
from rehearsal.hosts.power import PowerSocket
from slipway.breakage import Breakage
from slipway.work_folder import WORK_PREFIX

MIRROR_BUCKET = "slipway-rehearsal-mirror"
STEP_TIMEOUT_S = 30  # a hanging step costs a rehearsal this long; on AWS node.env says 300
SITE_ENV = f"SOFTWARE_MIRROR=s3://{MIRROR_BUCKET}\nSTEP_TIMEOUT_S={STEP_TIMEOUT_S}\n"
ACTION_TIMEOUT_S = 240
IDLE_TIMEOUT_S = 60
PARALLEL_ACTIONS = 4
LOGS_TIMEOUT_S = 20
LOGS_COMMAND = "tail -n +1 /var/log/slipway/*.log /var/log/parallelcluster/*.log 2>/dev/null"
KEPT_LINES = 10_000  # of what a host's custom actions printed
PROGRESS_LINE = re.compile(r" +[0-9.]+ s  ")
AWS_PORT = 5000


class LocalCluster:
    """The hosts of one cluster, its head node and static compute nodes from `boot` on, dynamic ones as Slurm asks.

    `judged`: how many nodes acceptance measures. Logs of the hosts are written to `logs`.
    """

    def __init__(
        self,
        instances: Instances,
        progress: Progress,
        spec: Specification,
        logs: Path,
        *,
        judged: int = 0,
        breakages: tuple[Breakage, ...] = (),
    ) -> None:
        self._aws = instances.aws
        self.instances = instances
        self._progress = progress
        self._spec = spec
        self._logs = logs
        self._judged = judged
        self._breakages = breakages
        self._broken: dict[str, list[Breakage]] = {}  # host -> what is broken on it
        self._output: dict[str, deque[str]] = {}  # host -> what its custom actions printed
        self._power: PowerSocket | None = None
        self._metadata = MetadataService(instances.at)
        self._lock = threading.Lock()
        self.fleet: Fleet | None = None
        self.dynamic: DynamicNodes | None = None
        self.static: StaticNodes | None = None
        self.daemon: Clustermgtd | None = None
        self.acceptance_output = ""

    def boot(self, configuration: Mapping[str, Any], nodes: list[Node], running: Mapping[str, Instance]) -> None:
        """Start everything up to idle compute nodes; `running` are the instances of static nodes by node name."""
        cidr = self._network_of(nodes[0].subnet_id)
        gateway = str(ipaddress.IPv4Network(cidr).network_address + 2)  # where a VPC has its own services
        parameters = self._parameters(configuration)
        fleet = self.fleet = Fleet(
            self._spec.work,
            cidr,
            gateway,
            tools_dir=TOOLS,
            cluster=self.instances.cluster,
            region=self._aws.region,
            aws_port=AWS_PORT,
            mounts=mounts_of(configuration),
            run_id=self._spec.work.name.removeprefix(WORK_PREFIX),
            has_metadata=True,
        )
        self._metadata.start()
        self._broken = self._breakages_by_host(nodes)
        static, dynamic = [[node for node in nodes if node.dynamic is kind] for kind in (False, True)]
        with self._progress.phase("local hosts boot, Slurm starts", depth=1):
            self._start_hosts(fleet, nodes, running, parameters, power_saving(configuration))
        for host in list(fleet.hosts.values()):
            self._break(host, fleet)
        daemon = self.daemon = Clustermgtd(fleet, self._progress)
        if dynamic:
            most = max(1, self._spec.max_hosts - (len(static) - 1))
            self.dynamic = DynamicNodes(fleet, dynamic, self, self._progress, daemon, most=most)
            self._power = PowerSocket(fleet.power_socket, self.dynamic.answer)
        with self._progress.phase("bootstrap of the nodes", depth=1):
            self._configure(fleet, static)
            fleet.wait_idle(IDLE_TIMEOUT_S)
        replaceable = [(node, running[node.name]) for node in static if node.role == "compute"]
        self.static = StaticNodes(fleet, replaceable, self, self._progress, daemon)
        self.static.start()
        powered = f", {len(dynamic)} powered down until a job needs them" if dynamic else ""
        self._progress.say(f"Slurm: {len(fleet.computes)} nodes idle{powered}")

    def run_command(self, instance_id: str, commands: list[str], timeout_s: float) -> tuple[int, str, str]:
        """Systems Manager's AWS-RunShellScript on the head node: exit code, standard output, standard error."""
        host = self._host_of(instance_id)
        lines: list[str] = []

        def on_line(line: str) -> None:
            lines.append(line)
            # Without a terminal the run's progress is shown as it comes; its tables are shown once, at the end.
            self._progress.update("job", "acceptance", "running", line.strip(), quiet=not PROGRESS_LINE.match(line))

        self._progress.update("job", "acceptance", "running", "started on the head node")
        with self._progress.phase("acceptance through Slurm", depth=1):
            done = host.stream(["/bin/sh", "-c", "\n".join(commands)], on_line, timeout_s=timeout_s)
        self.acceptance_output = done.stdout
        self._progress.update(
            "job", "acceptance", "ok" if done.ok else "failed", lines[-1].strip() if lines else "no output"
        )
        if done.timed_out:
            raise TimeoutError(f"not done after {timeout_s:.0f} s")
        return done.rc, done.stdout, done.stderr

    def stop(self) -> None:
        """End the hosts; safe to call twice."""
        with self._lock:
            fleet, self.fleet = self.fleet, None
            power, self._power = self._power, None
        self._metadata.stop()
        if power is not None:
            power.stop()
        if self.static is not None:
            self.static.stop()
        if self.dynamic is not None:
            self.dynamic.stop()
        if fleet is not None:
            fleet.stop()

    def collect_logs(self) -> None:
        """Copy what each host's custom actions printed and logged to the folder of logs."""
        for host in list(self.fleet.hosts.values()) if self.fleet else ():
            self.keep_log(host)

    def running(self) -> list[Host]:
        """The hosts that run, the head node first."""
        hosts = [host for host in list(self.fleet.hosts.values()) if host.alive()] if self.fleet else []
        return sorted(hosts, key=lambda host: host.spec.role != "head")

    def output_of(self, host: str) -> Callable[[str], None]:
        """What takes the lines that a host's custom actions print."""
        return self._output.setdefault(host, deque(maxlen=KEPT_LINES)).append

    # ---- what dynamic nodes need ----

    def launch(self, node: Node) -> Instance:
        """Start an instance for a node. Raises LaunchFailed."""
        return self.instances.launch(node)

    def terminate(self, instance: Instance) -> None:
        """End an instance."""
        self.instances.terminate(instance)

    def set_up(self, host: Host, node: Node) -> None:
        """Make a compute node of a host that was started for a job. Raises HostsError."""
        host.put("/etc/slipway/site.env", SITE_ENV.encode())
        if self.fleet is not None:
            self._break(host, self.fleet)
        self._run_actions(host, node)

    def keep_log(self, host: Host) -> None:
        """Append a host's logs to its file. A dynamic node's file has a part for each of its instances."""
        text = "".join(f"{line}\n" for line in ["==> custom actions <==", *self._output.pop(host.name, ())])
        with contextlib.suppress(HostsError):  # a host that no longer answers has no log of its own
            logs = host.exec(["/bin/sh", "-c", LOGS_COMMAND], timeout_s=LOGS_TIMEOUT_S)
            text += f"\n{logs.stdout}"
        with contextlib.suppress(OSError):
            self._logs.mkdir(parents=True, exist_ok=True)
            with (self._logs / f"{host.name}.log").open("a", encoding="utf-8") as file:
                file.write(text)

    # ---- inside ----

    def _host_of(self, instance_id: str) -> Host:
        name = self.instances.node_of(instance_id)
        if self.fleet is None or name not in self.fleet.hosts:
            raise HostsError(f"{instance_id}: no local host runs for this instance")
        return self.fleet.hosts[name]

    def _breakages_by_host(self, nodes: list[Node]) -> dict[str, list[Breakage]]:
        static = [node.name for node in nodes[1:] if not node.dynamic]
        dynamic = [node.name for node in nodes if node.dynamic]
        by_host: dict[str, list[Breakage]] = {}
        for breakage in self._breakages:
            by_host.setdefault(breakage.name_of_host(nodes[0].name, static, dynamic), []).append(breakage)
        return by_host

    def _break(self, host: Host, fleet: Fleet) -> None:
        for breakage in self._broken.get(host.name, ()):
            inject(breakage, host, fleet)
            self._progress.say(f"broken on purpose: {breakage}", "yellow")

    def _parameters(self, configuration: Mapping[str, Any]) -> slurm.Parameters:
        """The site's parameters of slurm.conf that this machine's Slurm accepts; the others are reported."""
        chosen, left_out = slurm.choose(parameters_of(configuration))
        for line in left_out:
            self._progress.say(line, "yellow")
        return chosen

    def _start_hosts(
        self,
        fleet: Fleet,
        nodes: list[Node],
        running: Mapping[str, Instance],
        parameters: slurm.Parameters,
        power: slurm.PowerSaving,
    ) -> None:
        for node in nodes:
            state = ("waiting", "powered down") if node.dynamic else ("running", "systemd boots")
            self._progress.update("host", node.name, *state)
        for host in fleet.boot(*(host_spec(node, running[node.name].address) for node in nodes if not node.dynamic)):
            host.put("/etc/slipway/site.env", SITE_ENV.encode())
            self._progress.update("host", host.name, "running", f"up in {host.boot_s:.1f} s, Slurm starts")
        judged = judged_nodes(nodes, self._judged)
        fleet.head.put(SITE_FILE, site_file(len(judged) or 1, starts_nodes=any(node.dynamic for node in judged)))
        addresses = {name: instance.address for name, instance in running.items()}
        computes = [host_spec(node, addresses.get(node.name, NO_ADDRESS)) for node in nodes[1:]]
        fleet.write_slurm(parameters, nodes=computes, power=power)
        fleet.start_slurm()

    def _configure(self, fleet: Fleet, nodes: list[Node]) -> None:
        """Run the head node's custom actions first, then those of the compute nodes in parallel."""
        self._configure_one(fleet.hosts[nodes[0].name], nodes[0])
        with ThreadPoolExecutor(PARALLEL_ACTIONS) as pool:
            running = [pool.submit(self._configure_one, fleet.hosts[node.name], node) for node in nodes[1:]]
        failed = [error for error in (future.exception() for future in running) if error is not None]
        if failed:
            raise failed[0]

    def _configure_one(self, host: Host, node: Node) -> None:
        try:
            self._run_actions(host, node)
        except HostsError as error:
            self._progress.update("host", host.name, "failed", failure_line(error).splitlines()[0])
            raise
        self._progress.update("host", host.name, "ok", "bootstrap done")

    def _run_actions(self, host: Host, node: Node) -> None:
        keep = self.output_of(host.name)

        def on_line(line: str) -> None:
            keep(line)
            if line.startswith("slipway: "):
                text = line.removeprefix("slipway: ")
                self._progress.update("host", host.name, "running", text, quiet="started" in line)

        s3 = self.instances.client("s3", host.name)
        run_custom_actions(host, node.actions, s3, on_line, timeout_s=ACTION_TIMEOUT_S)

    def _network_of(self, subnet_id: str) -> str:
        ec2 = self._aws.clients("ec2")
        vpc_id = ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]["VpcId"]
        return str(ec2.describe_vpcs(VpcIds=[vpc_id])["Vpcs"][0]["CidrBlock"])
