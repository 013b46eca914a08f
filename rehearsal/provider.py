"""What serves ``Custom::PclusterCluster`` in the rehearsal: ParallelCluster's validators, then local hosts.

Stands in for ParallelCluster's provider function and for what it then builds. Like the real one it gets the
configuration as CloudFormation sends it, refuses what ParallelCluster's own validators refuse, boots a head node and
the static compute nodes, runs each custom action on them, and answers with the attributes of describe-cluster. Dynamic
nodes come and go afterwards, as Slurm asks. Unlike the real one it tells in the failure which node, script and step it
was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import json
import re
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from rehearsal.cloud.errors import ResourceFailed
from rehearsal.cloud.model import ResourceRequest, ResourceResult
from rehearsal.cloud.pcluster import ValidationMessage, validate
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.dynamic import DynamicNodes, Instance, LaunchFailed
from rehearsal.hosts import Fleet, Host, HostsError, NodeFailed, slurm
from rehearsal.hosts.actions import run_custom_actions
from rehearsal.hosts.faults import Fault
from rehearsal.hosts.power import PowerSocket
from rehearsal.hosts.spec import NO_ADDRESS
from rehearsal.nodes import Node, host_spec, planned_nodes
from rehearsal.progress import Progress
from rehearsal.scale import SITE_FILE, site_file
from rehearsal.specification import TOOLS
from rehearsal.update import update
from slipway.instances import INSTANCE_TYPES
from slipway.places import FILES

PCLUSTER = FILES / ".venv-pcluster/bin/pcluster"
MIRROR_BUCKET = "slipway-rehearsal-mirror"
STEP_TIMEOUT_S = 30  # a hanging step costs a rehearsal this long; on AWS node.env says 300
SITE_ENV = f"SOFTWARE_MIRROR=s3://{MIRROR_BUCKET}\nSTEP_TIMEOUT_S={STEP_TIMEOUT_S}\n"
ACTION_TIMEOUT_S = 240
IDLE_TIMEOUT_S = 60
LEAST_SUSPEND_S = 5  # a shorter idle time would end nodes between two steps of one job's script
PARALLEL_ACTIONS = 4
LOGS_TIMEOUT_S = 20
LOGS_COMMAND = "tail -n +1 /var/log/slipway/*.log /var/log/parallelcluster/*.log 2>/dev/null"
KEPT_LINES = 10_000  # of what a host's custom actions printed
PROGRESS_LINE = re.compile(r" +[0-9.]+ s  ")
AWS_PORT = 5000

# ParallelCluster's provider (its repository: cloudformation/custom_resource/cluster.yaml): the properties that it takes
# or hands to create_cluster; the tag it adds; how many characters of the messages it answers.
PROPERTIES = {
    "ServiceToken",
    "DeletionPolicy",
    "ClusterName",
    "ClusterConfiguration",
    "RollbackOnFailure",
    "SuppressValidators",
    "ValidationFailureLevel",
}
RESOURCE_TAG = {"Key": "parallelcluster:custom_resource", "Value": "cluster"}
MESSAGE_CHARACTERS = 2048

ACCEPTED_WARNINGS = {
    "KeyPairValidator": "without a key pair users log in through Session Manager, which the head node's role allows",
    "EfaPlacementGroupValidator": "a reservation places its instances together itself; a group of our own would end in "
    "insufficient capacity, and without a reservation the settings choose",
    "EfaValidator": "a queue of one node has nothing to gain from EFA; where there are more, `slipway check` warns",
    "ExternalSlurmdbdTrafficNotEncrypted": "whoever names a slurmdbd elsewhere has read the same warning in `slipway "
    "check`",
    "DetailedMonitoringValidator": "one-minute metrics are wanted; the message says what they cost",
}
"""Warnings of ParallelCluster's validators that we accept, each with the reason. Every other warning is a failure."""


class ClusterProvider:
    """Serves one cluster. ``max_hosts`` bounds the compute hosts of a queue, and all dynamic ones that run at a time.

    ``judged``: how many nodes acceptance measures. With ``cloud_only`` no host is booted.
    """

    def __init__(
        self,
        aws: EmbeddedAws,
        progress: Progress,
        work: Path,
        logs: Path,
        *,
        cloud_only: bool,
        max_hosts: int,
        judged: int = 0,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        self._aws = aws
        self._progress = progress
        self._work = work
        self._logs = logs
        self._cloud_only = cloud_only
        self._max_hosts = max_hosts
        self._judged = judged
        self._faults = faults
        self._cluster = ""
        self._instances: dict[str, str] = {}
        self._said: dict[str, deque[str]] = {}  # host -> what its custom actions printed
        self._result: ResourceResult | None = None  # what Create answered
        self.acceptance_output = ""
        self._lock = threading.Lock()
        self.fleet: Fleet | None = None
        self.dynamic: DynamicNodes | None = None
        self._power: PowerSocket | None = None
        self.warnings: list[ValidationMessage] = []

    def handle(self, request: ResourceRequest) -> ResourceResult:
        """Create boots the cluster, Update tells the head node of what it may take as it stands, Delete ends it."""
        name = str(request.properties["ClusterName"])
        if request.request_type == "Delete":
            self.stop()
            return ResourceResult(name)
        if request.request_type == "Update":
            return self._update(name, request)
        unknown = set(request.properties) - PROPERTIES
        if unknown:
            raise ResourceFailed(f"create_cluster() got unexpected arguments: {', '.join(sorted(unknown))}")
        configuration: dict[str, Any] = dict(request.properties["ClusterConfiguration"])
        configuration["Tags"] = [*configuration.get("Tags", []), RESOURCE_TAG]
        with self._progress.phase("ParallelCluster's validators", depth=1):
            messages = self._validate(name, configuration)
        self._cluster = name
        nodes = planned_nodes(configuration, self._max_hosts)
        addresses = {node.name: self.launch(node).address for node in nodes if not node.dynamic}
        if not self._cloud_only:
            try:
                self._boot(name, configuration, nodes, addresses)
            except HostsError as error:
                self.collect_logs()  # the rollback that follows ends the hosts
                raise ResourceFailed(_told(error)) from error
        self._result = ResourceResult(name, self._attributes(name, nodes[0], addresses, messages))
        return self._result

    def _update(self, name: str, request: ResourceRequest) -> ResourceResult:
        """What ParallelCluster's own classes let through, as `pcluster update-cluster` does; the ids stay."""
        old, new = (dict(one["ClusterConfiguration"]) for one in (request.old_properties, request.properties))
        head = self.fleet.head if self.fleet is not None else None
        said = self._said.setdefault(head.name if head is not None else "update", deque(maxlen=KEPT_LINES))
        python = PCLUSTER.with_name("python")
        try:
            s3 = self._aws.clients("s3")
            update(old, new, head, s3, said.append, python=python, timeout_s=ACTION_TIMEOUT_S)
        except HostsError as error:
            raise ResourceFailed(_told(error)) from error
        return self._result or ResourceResult(name)

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
        if power is not None:
            power.stop()
        if self.dynamic is not None:
            self.dynamic.stop()
        if fleet is not None:
            fleet.stop()

    def collect_logs(self) -> None:
        """Copy what each host's custom actions printed and logged to the folder of logs.

        A host that no longer answers has no log of its own.
        """
        for host in list(self.fleet.hosts.values()) if self.fleet else ():
            self._keep_log(host)

    def _keep_log(self, host: Host) -> None:
        """A dynamic node's log has a part for each of its instances."""
        text = "".join(f"{line}\n" for line in ["==> custom actions <==", *self._said.pop(host.name, ())])
        with contextlib.suppress(HostsError):
            logs = host.exec(["/bin/sh", "-c", LOGS_COMMAND], timeout_s=LOGS_TIMEOUT_S)
            text += f"\n{logs.stdout}"
        with contextlib.suppress(OSError):
            self._logs.mkdir(parents=True, exist_ok=True)
            with (self._logs / f"{host.name}.log").open("a", encoding="utf-8") as file:
                file.write(text)

    def _host_of(self, instance_id: str) -> Host:
        name = self._instances.get(instance_id, "")
        if self.fleet is None or name not in self.fleet.hosts:
            raise HostsError(f"{instance_id}: no local host stands behind this instance")
        return self.fleet.hosts[name]

    def _validate(self, name: str, configuration: dict[str, Any]) -> list[ValidationMessage]:
        self._progress.update("check", "pcluster", "running", "create-cluster --dryrun")
        messages = validate(
            configuration,
            name=name,
            region=self._aws.region,
            endpoint=self._aws.address_endpoint,
            pcluster_bin=PCLUSTER,
            run_dir=self._work / "pcluster",
        )
        refused = [
            message
            for message in messages
            if message.level == "ERROR" or (message.level == "WARNING" and message.type not in ACCEPTED_WARNINGS)
        ]
        self.warnings = [
            message for message in messages if message.level == "WARNING" and message.type in ACCEPTED_WARNINGS
        ]
        if refused:
            self._progress.update("check", "pcluster", "failed", refused[0].message)
            raise ResourceFailed(
                "ParallelCluster's validators refuse the configuration: "
                + "; ".join(f"{one.type}: {one.message}" for one in refused)
            )
        self._progress.update("check", "pcluster", "ok", f"validators passed, {len(self.warnings)} accepted warnings")
        return messages

    def launch(self, node: Node) -> Instance:
        """An emulated EC2 instance for a node. LaunchFailed: EC2 refuses it."""
        ec2 = self._aws.clients("ec2")
        names = {"Name": node.name, "parallelcluster:cluster-name": self._cluster}
        tags = [{"Key": key, "Value": value} for key, value in names.items()]
        images = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": ["aws-parallelcluster-*"]}])
        try:
            started = ec2.run_instances(
                ImageId=images["Images"][0]["ImageId"],
                InstanceType=node.instance_type,
                SubnetId=node.subnet_id,
                MinCount=1,
                MaxCount=1,
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            )["Instances"][0]
        except ClientError as error:
            raise LaunchFailed(str(error.response["Error"]["Code"])) from error
        instance = Instance(started["InstanceId"], started["PrivateIpAddress"])
        self._instances[instance.id] = node.name
        self._aws.register_instance(instance.id, node.name, instance.address)
        return instance

    def terminate(self, instance: Instance) -> None:
        """End the emulated instance behind a node."""
        self._aws.commands.unregister(instance.id)
        self._instances.pop(instance.id, None)
        self._aws.clients("ec2").terminate_instances(InstanceIds=[instance.id])

    def _boot(self, name: str, configuration: Mapping[str, Any], nodes: list[Node], addresses: dict[str, str]) -> None:
        cidr = self._network_of(nodes[0].subnet_id)
        gateway = str(ipaddress.IPv4Network(cidr).network_address + 2)  # where a VPC has its own services
        parameters = self._parameters(configuration)
        fleet = self.fleet = Fleet(
            self._work,
            cidr,
            gateway,
            tools_dir=TOOLS,
            cluster=name,
            region=self._aws.region,
            aws_port=AWS_PORT,
            mounts=mounts_of(configuration),
        )
        faults = self._faults_by_host(nodes)
        dynamic = [node for node in nodes if node.dynamic]
        with self._progress.phase("local hosts boot, Slurm starts", depth=1):
            self._start_hosts(fleet, nodes, addresses, parameters, power_saving(configuration))
        for host in list(fleet.hosts.values()):
            self._break(host, fleet, faults)
        if dynamic:
            self._serve_power(fleet, nodes, faults)
        with self._progress.phase("bootstrap of the nodes", depth=1):
            self._configure(fleet, [node for node in nodes if not node.dynamic])
            fleet.wait_idle(IDLE_TIMEOUT_S)
        powered = f", {len(dynamic)} powered down until a job needs them" if dynamic else ""
        self._progress.say(f"Slurm: {len(fleet.computes)} nodes idle{powered}")

    def _faults_by_host(self, nodes: list[Node]) -> dict[str, list[Fault]]:
        """The faults on purpose by the node that each is for."""
        static = [node.name for node in nodes[1:] if not node.dynamic]
        dynamic = [node.name for node in nodes if node.dynamic]
        faults: dict[str, list[Fault]] = {}
        for fault in self._faults:
            faults.setdefault(fault.name_of_host(nodes[0].name, static, dynamic), []).append(fault)
        return faults

    def _break(self, host: Host, fleet: Fleet, faults: Mapping[str, list[Fault]]) -> None:
        for fault in faults.get(host.name, ()):
            fault.inject_into(host, fleet)
            self._progress.say(f"fault on purpose: {fault}", "yellow")

    def _serve_power(self, fleet: Fleet, nodes: list[Node], faults: Mapping[str, list[Fault]]) -> None:
        """From now on Slurm's power saving starts and ends the dynamic nodes."""

        def set_up(host: Host, node: Node) -> None:
            host.put("/etc/slipway/site.env", SITE_ENV.encode())
            self._break(host, fleet, faults)
            self._run_actions(host, node)

        static = sum(node.role == "compute" and not node.dynamic for node in nodes)
        self.dynamic = DynamicNodes(
            fleet,
            [node for node in nodes if node.dynamic],
            self,
            self._progress,
            most=max(1, self._max_hosts - static),
            set_up=set_up,
            keep_log=self._keep_log,
            told=_told,
        )
        self._power = PowerSocket(fleet.power_socket, self.dynamic.answer)

    def _parameters(self, configuration: Mapping[str, Any]) -> slurm.Parameters:
        """The site's parameters of slurm.conf that this machine's Slurm can be given; the others are told."""
        chosen, left_out = slurm.choose(parameters_of(configuration))
        for line in left_out:
            self._progress.say(line, "yellow")
        return chosen

    def _start_hosts(
        self,
        fleet: Fleet,
        nodes: list[Node],
        addresses: dict[str, str],
        parameters: slurm.Parameters,
        power: slurm.PowerSaving,
    ) -> None:
        booting = [node for node in nodes if not node.dynamic]
        for node in nodes:
            state = ("waiting", "powered down") if node.dynamic else ("running", "systemd boots")
            self._progress.update("host", node.name, *state)
        for host in fleet.boot(*(host_spec(node, addresses[node.name]) for node in booting)):
            host.put("/etc/slipway/site.env", SITE_ENV.encode())
            self._progress.update("host", host.name, "running", f"up in {host.boot_s:.1f} s, Slurm starts")
        judged = judged_nodes(nodes, self._judged)
        fleet.head.put(SITE_FILE, site_file(len(judged) or 1, starts_nodes=any(node.dynamic for node in judged)))
        computes = [host_spec(node, addresses.get(node.name, NO_ADDRESS)) for node in nodes[1:]]
        fleet.write_slurm(parameters, nodes=computes, power=power)
        fleet.start_slurm()

    def _configure(self, fleet: Fleet, nodes: list[Node]) -> None:
        """The head node's custom actions first, then those of the compute nodes beside each other."""
        self._configure_one(fleet.hosts[nodes[0].name], nodes[0])
        with ThreadPoolExecutor(PARALLEL_ACTIONS) as pool:
            running = [pool.submit(self._configure_one, fleet.hosts[node.name], node) for node in nodes[1:]]
        failed = [error for error in (one.exception() for one in running) if error is not None]
        if failed:
            raise failed[0]

    def _configure_one(self, host: Host, node: Node) -> None:
        try:
            self._run_actions(host, node)
        except HostsError as error:
            self._progress.update("host", host.name, "failed", _told(error).splitlines()[0])
            raise
        self._progress.update("host", host.name, "ok", "bootstrap done")

    def _run_actions(self, host: Host, node: Node) -> None:
        said = self._said.setdefault(host.name, deque(maxlen=KEPT_LINES))

        def on_line(line: str) -> None:
            said.append(line)
            if line.startswith("slipway: "):
                self._progress.update(
                    "host", host.name, "running", line.removeprefix("slipway: "), quiet="started" in line
                )

        run_custom_actions(host, node.actions, self._aws.clients("s3"), on_line, timeout_s=ACTION_TIMEOUT_S)

    def _network_of(self, subnet_id: str) -> str:
        ec2 = self._aws.clients("ec2")
        vpc_id = ec2.describe_subnets(SubnetIds=[subnet_id])["Subnets"][0]["VpcId"]
        return str(ec2.describe_vpcs(VpcIds=[vpc_id])["Vpcs"][0]["CidrBlock"])

    def _attributes(
        self, name: str, head: Node, addresses: dict[str, str], messages: list[ValidationMessage]
    ) -> dict[str, Any]:
        """describe-cluster, flattened as ParallelCluster's provider does."""
        instance = next(instance for instance, node in self._instances.items() if node == head.name)
        return {
            "clusterName": name,
            "clusterStatus": "CREATE_COMPLETE",
            "region": self._aws.region,
            "version": "3.16.1",
            "computeFleetStatus": "RUNNING",
            "headNode.instanceId": instance,
            "headNode.instanceType": head.instance_type,
            "headNode.privateIpAddress": addresses[head.name],
            "headNode.state": "running",
            "validationMessages": _cut(json.dumps([dataclasses.asdict(message) for message in messages])),
        }


def _told(error: HostsError) -> str:
    """The failure in one line where the node's own words are known: node, step or script, exit code, log, hint."""
    if not isinstance(error, NodeFailed):
        return str(error)
    logs = f"its logs: hosts/{error.host}.log"
    words = next((line.split("slipway: FAULT ", 1)[1] for line in error.tail if "slipway: FAULT " in line), "")
    if not words:
        said = f"; it said: {error.tail[-1]}" if error.tail else ""
        return f"{error.host}: {error.script}: {error.reason} (exit {error.rc}){said}; {logs}"
    details = " ".join(word for word in words.split(" ") if not word.startswith(("host=", "step=")))
    lines = [line.removeprefix("  | ") for line in error.tail if line.startswith("  | ") and "-hint: " not in line]
    reason = f"; it said: {lines[-1]}" if lines else ""
    return f"{error.host}: step {error.step}: {details}{reason}; {logs}"


def _cut(text: str) -> str:
    """As ParallelCluster's provider shortens the messages, to stay below CloudFormation's limit."""
    return text if len(text) <= MESSAGE_CHARACTERS else f"TRUNCATED:{text[:MESSAGE_CHARACTERS]}"


def power_saving(configuration: Mapping[str, Any]) -> slurm.PowerSaving:
    """Slurm's power saving with the idle time's minutes (ScaledownIdletime) as seconds."""
    minutes = int(configuration["Scheduling"].get("SlurmSettings", {}).get("ScaledownIdletime", slurm.POWER.suspend_s))
    return slurm.PowerSaving(suspend_s=max(LEAST_SUSPEND_S, minutes))


def mounts_of(configuration: Mapping[str, Any]) -> list[str]:
    """Where the site's file systems are mounted; /fsx and /home are shared on every local host in any case."""
    places = [storage["MountDir"] for storage in configuration.get("SharedStorage", [])]
    return [place for place in places if place not in ("/fsx", "/home")]


def parameters_of(configuration: Mapping[str, Any]) -> slurm.Parameters:
    """The site's own parameters of slurm.conf in a cluster configuration."""
    scheduling = configuration["Scheduling"]
    cluster = {
        key: str(value)
        for entry in scheduling.get("SlurmSettings", {}).get("CustomSlurmSettings", [])
        for key, value in entry.items()
    }
    queues = {
        queue["Name"]: {key: str(value) for key, value in queue.get("CustomSlurmSettings", {}).items()}
        for queue in scheduling["SlurmQueues"]
    }
    return slurm.Parameters(cluster, queues)


def judged_nodes(nodes: list[Node], wanted: int) -> list[Node]:
    """The hosts that acceptance measures: ``wanted`` of the first queue with GPUs, or all of it; static ones first."""
    with_gpus = [node for node in nodes if node.role == "compute" and INSTANCE_TYPES[node.instance_type].gpus]
    return [node for node in with_gpus if node.queue == with_gpus[0].queue][:wanted]
