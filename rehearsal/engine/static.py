"""Static nodes: what clustermgtd of ParallelCluster does with one that is drained or down, done with local hosts.

Compared with aws-parallelcluster-node, src/slurm_plugin/clustermgtd.py and slurm_resources.py (develop, 2024-10-14):
each loop (60 s there) a static node of an active partition that is DRAINED without jobs, or DOWN, and that is not being
replaced already is set DOWN with `REASON`, its instance is terminated and a new one is launched under the same name.
The node's own set-up ends with `scontrol update state=resume reason='Node start up'` (cookbook, finalize_compute.rb).
Slurm has the address of each node's instance as its NodeAddr (`_update_slurm_node_addrs` of instance_manager.py).
`terminate_drain_nodes = false` in parallelcluster_clustermgtd.conf, read anew at each loop, leaves drained nodes alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence

from rehearsal.engine.clustermgtd import Cluster, Clustermgtd
from rehearsal.engine.configuration import Node, host_spec
from rehearsal.engine.instances import Instance, LaunchFailed
from rehearsal.engine.progress import Progress
from rehearsal.hosts import Fleet, HostsError
from rehearsal.hosts.errors import failure_line
from rehearsal.hosts.image import CLUSTERMGTD_CONF

REASON = "Static node maintenance: unhealthy node is being replaced"  # clustermgtd's words
STARTED = "Node start up"  # the cookbook's words
LOOP_S = 2.0
"""Between two looks at the nodes; clustermgtd's loop_time is 60 s."""
ASK_TIMEOUT_S = 20.0
ENDING_S = 30.0


class StaticNodes:
    """The static nodes of one cluster and the instances behind them."""

    def __init__(
        self,
        fleet: Fleet,
        running: Sequence[tuple[Node, Instance]],
        cluster: Cluster,
        progress: Progress,
        daemon: Clustermgtd,
    ) -> None:
        self._fleet = fleet
        self._nodes = {node.name: node for node, _ in running}
        self._instances: dict[str, Instance] = {node.name: instance for node, instance in running}
        self._cluster = cluster
        self._progress = progress
        self._daemon = daemon
        self._replacing: dict[str, threading.Thread] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="clustermgtd", daemon=True)
        self.replaced: list[str] = []  # names, one for each replacement

    def start(self) -> None:
        """Give Slurm the addresses of the running nodes, and look at the nodes every LOOP_S from now on."""
        if self._instances:
            self._set_address({name: instance.address for name, instance in self._instances.items()})
        self._thread.start()

    def stop(self) -> None:
        """Replace no more nodes, and wait for what is under way, a bounded while."""
        self._stop.set()
        self._daemon.stopping = True
        for thread in [self._thread, *self._replacing.values()]:
            if thread.is_alive():
                thread.join(ENDING_S)

    def look(self) -> list[str]:
        """One loop of clustermgtd; returns the names of the nodes that it began to replace."""
        unhealthy = [name for name in self._unhealthy() if not self._is_being_replaced(name)]
        if not unhealthy:
            return []
        listed = [f"{name}({self._instances[name].address if name in self._instances else name})" for name in unhealthy]
        self._daemon.log(f"Found the following unhealthy static nodes: (x{len(unhealthy)}) {listed}")
        self._daemon.log("Setting unhealthy static nodes to DOWN")
        for name in unhealthy:
            self._set_address({name: name}, "state=down", f"reason={REASON}")
        for name in unhealthy:
            self._replacing[name] = threading.Thread(
                target=self._replace, args=(self._nodes[name],), name=f"replacement of {name}", daemon=True
            )
            self._replacing[name].start()
        self._daemon.log(
            f"After node maintenance, following nodes are currently in replacement: (x{len(unhealthy)}) {unhealthy}"
        )
        return unhealthy

    def _loop(self) -> None:
        while not self._stop.wait(LOOP_S):
            with contextlib.suppress(HostsError):  # the head node ended or is busy: the next loop looks again
                self.look()

    def _is_being_replaced(self, name: str) -> bool:
        thread = self._replacing.get(name)
        return thread is not None and thread.is_alive()

    def _unhealthy(self) -> list[str]:
        """Static nodes of active partitions that Slurm has as drained or down."""
        words = {"down"} | (set() if self._leaves_drained() else {"drained"})
        done = self._fleet.head.exec(["sinfo", "--noheader", "--Node", "--format=%N|%T|%a"], timeout_s=ASK_TIMEOUT_S)
        rows = [line.split("|") for line in done.stdout.splitlines() if done.ok]
        return [
            name
            for name, state, active in rows
            if name in self._nodes and state.rstrip("*") in words and active.startswith("up")
        ]

    def _leaves_drained(self) -> bool:
        done = self._fleet.head.exec(["cat", CLUSTERMGTD_CONF], timeout_s=ASK_TIMEOUT_S)
        lines = (line.replace(" ", "").lower() for line in done.stdout.splitlines())
        return done.ok and "terminate_drain_nodes=false" in lines

    def _replace(self, node: Node) -> None:
        name = node.name
        self._progress.update("host", name, "running", "unhealthy: its instance is replaced")
        self.replaced.append(name)
        self._end(name)
        try:
            instance = self._instances[name] = self._cluster.launch(node)
        except LaunchFailed as error:
            self._progress.say(f"{name}: EC2 gives no instance: {error.code}", "yellow")
            return  # it stays DOWN, and the next loop tries again
        self._set_address({name: instance.address})
        try:
            (host,) = self._fleet.boot(host_spec(node, instance.address))
            self._cluster.set_up(host, node)
            self._fleet.start_slurm(host)
        except (HostsError, OSError) as error:
            if not self._stop.is_set():
                reason = failure_line(error) if isinstance(error, HostsError) else f"{name}: {error}"
                self._progress.update("host", name, "failed", reason.splitlines()[0])
                self._daemon.count_failure(node.queue, reason)
            return
        self._update(name, "state=resume", f"reason={STARTED}")
        self._progress.update("host", name, "ok", "replaced, joined Slurm")

    def _end(self, name: str) -> None:
        host = self._fleet.hosts.get(name)
        if host is not None:
            self._cluster.keep_log(host)
        with contextlib.suppress(HostsError):
            self._fleet.end(name)
        instance = self._instances.pop(name, None)
        if instance is not None:
            self._cluster.terminate(instance)

    def _set_address(self, addresses: Mapping[str, str], *update: str) -> None:
        """Set the NodeAddr of each node; a node without a machine has its own name there."""
        names = ",".join(addresses)
        self._update(names, f"nodeaddr={','.join(addresses.values())}", f"nodehostname={names}", *update)

    def _update(self, names: str, *update: str) -> None:
        self._daemon.update(f"nodename={names}", *update)
