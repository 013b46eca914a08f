"""What serves ``Custom::PclusterCluster`` in the rehearsal: ParallelCluster's validators, then local hosts.

Stands in for ParallelCluster's provider function and for what it then builds. Like the real one it gets the
configuration as CloudFormation sends it, refuses what ParallelCluster's own validators refuse, boots a head node and
the static compute nodes, runs each custom action on them, and answers with the attributes of describe-cluster. Unlike
the real one it tells in the failure which node, script and step it was.
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

from rehearsal.cloud.errors import ResourceFailed
from rehearsal.cloud.model import ResourceRequest, ResourceResult
from rehearsal.cloud.pcluster import ValidationMessage, validate
from rehearsal.cloud.server import EmbeddedAws
from rehearsal.hosts import Fleet, Host, HostsError, HostSpec, NodeFailed, slurm
from rehearsal.hosts.actions import run_custom_actions
from rehearsal.hosts.faults import Fault
from rehearsal.progress import Progress
from rehearsal.scale import SITE_FILE, site_file
from rehearsal.specification import REPOSITORY, TOOLS
from slipway.instances import INSTANCE_TYPES

PCLUSTER = REPOSITORY / ".venv-pcluster/bin/pcluster"
MIRROR_BUCKET = "slipway-rehearsal-mirror"
STEP_TIMEOUT_S = 30  # a hanging step costs a rehearsal this long; on AWS node.env says 300
SITE_ENV = f"SOFTWARE_MIRROR=s3://{MIRROR_BUCKET}\nSTEP_TIMEOUT_S={STEP_TIMEOUT_S}\n"
ACTION_TIMEOUT_S = 240
IDLE_TIMEOUT_S = 60
PARALLEL_ACTIONS = 4
LOGS_TIMEOUT_S = 20
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
    "ExternalSlurmdbdTrafficNotEncrypted": "whoever names a slurmdbd elsewhere has read the same warning in `slipway "
    "check`",
    "DetailedMonitoringValidator": "one-minute metrics are wanted; the message says what they cost",
}
"""Warnings of ParallelCluster's validators that we accept, each with the reason. Every other warning is a failure."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One node to boot: what ParallelCluster would start an instance for."""

    name: str
    role: str
    instance_type: str
    subnet_id: str
    actions: Mapping[str, Any]
    queue: str = ""
    compute_resource: str = ""


class ClusterProvider:
    """Serves one cluster. ``max_hosts`` bounds the compute hosts of a queue; with ``cloud_only`` none is booted."""

    def __init__(
        self,
        aws: EmbeddedAws,
        progress: Progress,
        work: Path,
        logs: Path,
        *,
        cloud_only: bool,
        max_hosts: int,
        faults: tuple[Fault, ...] = (),
    ) -> None:
        self._aws = aws
        self._progress = progress
        self._work = work
        self._logs = logs
        self._cloud_only = cloud_only
        self._max_hosts = max_hosts
        self._faults = faults
        self._instances: dict[str, str] = {}
        self._said: dict[str, deque[str]] = {}  # host -> what its custom actions printed
        self.acceptance_output = ""
        self._lock = threading.Lock()
        self.fleet: Fleet | None = None
        self.warnings: list[ValidationMessage] = []

    def handle(self, request: ResourceRequest) -> ResourceResult:
        """Create boots the cluster, Delete ends it; an update of a cluster is beyond the rehearsal and says so."""
        name = str(request.properties["ClusterName"])
        if request.request_type == "Delete":
            self.stop()
            return ResourceResult(name)
        if request.request_type == "Update":
            raise ResourceFailed("the rehearsal deploys a cluster once; run it anew to see a change")
        unknown = set(request.properties) - PROPERTIES
        if unknown:
            raise ResourceFailed(f"create_cluster() got unexpected arguments: {', '.join(sorted(unknown))}")
        configuration: dict[str, Any] = dict(request.properties["ClusterConfiguration"])
        configuration["Tags"] = [*configuration.get("Tags", []), RESOURCE_TAG]
        with self._progress.phase("ParallelCluster's validators", depth=1):
            messages = self._validate(name, configuration)
        nodes = planned_nodes(configuration, self._max_hosts)
        addresses = self._start_instances(name, nodes)
        if not self._cloud_only:
            try:
                self._boot(name, configuration, nodes, addresses)
            except HostsError as error:
                self.collect_logs()  # the rollback that follows ends the hosts
                raise ResourceFailed(_told(error)) from error
        return ResourceResult(name, self._attributes(name, nodes[0], addresses, messages))

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
        if fleet is not None:
            fleet.stop()

    def collect_logs(self) -> None:
        """Copy what each host's custom actions printed and logged to the folder of logs.

        A host that no longer answers has no log of its own.
        """
        for host in list(self.fleet.hosts.values()) if self.fleet else ():
            text = "".join(f"{line}\n" for line in ["==> custom actions <==", *self._said.get(host.name, ())])
            with contextlib.suppress(HostsError):
                logs = host.exec(["/bin/sh", "-c", "tail -n +1 /var/log/slipway/*.log"], timeout_s=LOGS_TIMEOUT_S)
                text += f"\n{logs.stdout}"
            with contextlib.suppress(OSError):
                self._logs.mkdir(parents=True, exist_ok=True)
                (self._logs / f"{host.name}.log").write_text(text, encoding="utf-8")

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

    def _start_instances(self, cluster: str, nodes: list[Node]) -> dict[str, str]:
        """An emulated EC2 instance for each node; returns each node's private address."""
        ec2 = self._aws.clients("ec2")
        image = ec2.describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": ["aws-parallelcluster-*"]}])[
            "Images"
        ][0]
        addresses: dict[str, str] = {}
        for node in nodes:
            names = {"Name": node.name, "parallelcluster:cluster-name": cluster}
            tags = [{"Key": key, "Value": value} for key, value in names.items()]
            started = ec2.run_instances(
                ImageId=image["ImageId"],
                InstanceType=node.instance_type,
                SubnetId=node.subnet_id,
                MinCount=1,
                MaxCount=1,
                TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
            )["Instances"][0]
            self._instances[started["InstanceId"]] = node.name
            addresses[node.name] = started["PrivateIpAddress"]
            self._aws.register_instance(started["InstanceId"], node.name, started["PrivateIpAddress"])
        return addresses

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
        with self._progress.phase("local hosts boot, Slurm starts", depth=1):
            self._start_hosts(fleet, nodes, addresses, parameters)
        for fault in self._faults:
            fault.inject(fleet)
            self._progress.say(f"fault on purpose: {fault}", "yellow")
        with self._progress.phase("bootstrap of the nodes", depth=1):
            self._configure(fleet, nodes)
            fleet.wait_idle(IDLE_TIMEOUT_S)
        self._progress.say(f"Slurm: {len(fleet.computes)} nodes idle")

    def _parameters(self, configuration: Mapping[str, Any]) -> slurm.Parameters:
        """The site's parameters of slurm.conf that this machine's Slurm can be given; the others are told."""
        chosen, left_out = slurm.choose(parameters_of(configuration))
        for line in left_out:
            self._progress.say(line, "yellow")
        return chosen

    def _start_hosts(
        self, fleet: Fleet, nodes: list[Node], addresses: dict[str, str], parameters: slurm.Parameters
    ) -> None:
        for node in nodes:
            self._progress.update("host", node.name, "running", "systemd boots")
        for host in fleet.boot(*(_host_spec(node, addresses[node.name]) for node in nodes)):
            host.put("/etc/slipway/site.env", SITE_ENV.encode())
            self._progress.update("host", host.name, "running", f"up in {host.boot_s:.1f} s, Slurm starts")
        fleet.head.put(SITE_FILE, site_file(judged_nodes(nodes)))
        fleet.write_slurm(parameters)
        fleet.start_slurm()

    def _configure(self, fleet: Fleet, nodes: list[Node]) -> None:
        """The head node's custom actions first, then those of the compute nodes beside each other."""
        self._run_actions(fleet.hosts[nodes[0].name], nodes[0])
        with ThreadPoolExecutor(PARALLEL_ACTIONS) as pool:
            running = [pool.submit(self._run_actions, fleet.hosts[node.name], node) for node in nodes[1:]]
        failed = [error for error in (one.exception() for one in running) if error is not None]
        if failed:
            raise failed[0]

    def _run_actions(self, host: Host, node: Node) -> None:
        said = self._said.setdefault(host.name, deque(maxlen=KEPT_LINES))

        def on_line(line: str) -> None:
            said.append(line)
            if line.startswith("slipway: "):
                self._progress.update(
                    "host", host.name, "running", line.removeprefix("slipway: "), quiet="started" in line
                )

        try:
            run_custom_actions(host, node.actions, self._aws.clients("s3"), on_line, timeout_s=ACTION_TIMEOUT_S)
        except HostsError as error:
            self._progress.update("host", host.name, "failed", _told(error).splitlines()[0])
            raise
        self._progress.update("host", host.name, "ok", "bootstrap done")

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


def planned_nodes(configuration: Mapping[str, Any], max_hosts: int) -> list[Node]:
    """The head node and each queue's static nodes (at most ``max_hosts`` of them), named as ParallelCluster does."""
    head = configuration["HeadNode"]
    nodes = [Node("head", "head", head["InstanceType"], head["Networking"]["SubnetId"], head.get("CustomActions", {}))]
    for queue in configuration["Scheduling"]["SlurmQueues"]:
        for resource in queue["ComputeResources"]:
            for number in range(1, min(int(resource["MinCount"]), max_hosts) + 1):
                nodes.append(
                    Node(
                        name=f"{queue['Name']}-st-{resource['Name']}-{number}",
                        role="compute",
                        instance_type=resource["InstanceType"],
                        subnet_id=queue["Networking"]["SubnetIds"][0],
                        actions=queue.get("CustomActions", {}),
                        queue=queue["Name"],
                        compute_resource=resource["Name"],
                    )
                )
    return nodes


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


def judged_nodes(nodes: list[Node]) -> int:
    """How many hosts acceptance measures: those of the first queue with GPUs, as in the settings' scenario."""
    queues = [node.queue for node in nodes if node.role == "compute" and INSTANCE_TYPES[node.instance_type].gpus]
    return max(1, queues.count(queues[0])) if queues else 1


def _host_spec(node: Node, address: str) -> HostSpec:
    instance = INSTANCE_TYPES[node.instance_type]
    return HostSpec(
        name=node.name,
        ip=address,
        role="head" if node.role == "head" else "compute",
        instance_type=node.instance_type,
        vcpus=instance.vcpus,
        memory_mib=instance.memory_mib,
        gpus=instance.gpus,
        gpu_kind=instance.gpu_model or "gpu",
        queue=node.queue,
        compute_resource=node.compute_resource,
        features=("efa",) if instance.efa_interfaces else (),
    )
