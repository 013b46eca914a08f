"""Dynamic nodes: what EC2 and ParallelCluster's daemon do for Slurm's power saving, done with local hosts.

Slurm's resume program asks for nodes: each gets an emulated instance at once, and its host boots, is set up and joins
Slurm in a thread, which then watches it until it has to end. A node whose set-up fails, or whose host dies,
is treated as by clustermgtd of ParallelCluster: its instance is terminated, the node is set down with a reason and
powered down, its job is queued again; after several failures the partition is INACTIVE (protected mode).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable

from rehearsal.engine.clustermgtd import Cluster, Clustermgtd
from rehearsal.engine.configuration import Node, host_spec
from rehearsal.engine.instances import Instance, LaunchFailed
from rehearsal.engine.progress import Progress
from rehearsal.hosts import Fleet, HostsError
from rehearsal.hosts.errors import failure_line
from rehearsal.hosts.power import Answer

REASON = "Scheduler health check failed"  # clustermgtd's words for a dynamic node that it gives up
NOT_LAUNCHED = "(Code:{code})Failure when resuming nodes"  # the resume program's
NO_CAPACITY = "InsufficientInstanceCapacity"
NO_CAPACITY_PAUSE_S = 3.0
"""A node that got no instance may be asked for again after so long; insufficient_capacity_timeout is 600 s."""
WATCH_S = 0.3
ENDING_S = 30.0  # a host that ends has gone by then


class Life:
    """One instance of a node, from its launch to its end, in a thread that runs `live`."""

    def __init__(self, node: Node, instance: Instance, before: Life | None, live: Callable[[Life], None]) -> None:
        self.node = node
        self.instance = instance
        self.before = before  # the node's last instance, which may still be ending
        self.to_end = threading.Event()
        self.up = False
        self.thread = threading.Thread(target=live, args=(self,), name=f"life of {node.name}", daemon=True)


class DynamicNodes:
    """The dynamic nodes of one cluster, of which at most `most` run at a time."""

    def __init__(
        self,
        fleet: Fleet,
        nodes: Iterable[Node],
        cluster: Cluster,
        progress: Progress,
        daemon: Clustermgtd,
        *,
        most: int,
    ) -> None:
        self._fleet = fleet
        self._nodes = {node.name: node for node in nodes}
        self._cluster = cluster
        self._progress = progress
        self._most = most
        self._lives: dict[str, Life] = {}
        self._stopping = False
        self._lock = threading.Lock()
        self._daemon = daemon

    def answer(self, action: str, names: list[str]) -> Answer:
        """Answer Slurm's programs: see rehearsal.hosts.power."""
        serve = self._resume if action == "resume" else self._suspend
        return {name: serve(name) for name in names}

    def stop(self) -> None:
        """End every node and wait for that, a bounded while; nothing starts any more."""
        with self._lock:
            self._stopping = self._daemon.stopping = True
            lives = list(self._lives.values())
        for life in lives:
            self._ask_to_end(life)
        until = time.monotonic() + ENDING_S
        for life in lives:
            life.thread.join(max(0.0, until - time.monotonic()))

    def _resume(self, name: str) -> dict[str, str]:
        with self._lock:
            node, before = self._nodes.get(name), self._lives.get(name)
            if node is None or self._stopping:
                return {"error": f"{name}: no dynamic node of this cluster" if node is None else "the rehearsal ends"}
            if before is not None:
                self._ask_to_end(before)
            try:
                if sum(not life.to_end.is_set() for life in self._lives.values()) >= self._most:
                    raise LaunchFailed(NO_CAPACITY)
                instance = self._cluster.launch(node)
            except LaunchFailed as error:
                self._progress.say(f"{name}: EC2 gives no instance: {error.code}", "yellow")
                self._power_down_later(node)
                return {"error": NOT_LAUNCHED.format(code=error.code)}
            self._progress.update("host", name, "running", f"Slurm asks for it: instance {instance.id}")
            life = self._lives[name] = Life(node, instance, before, self._live)
            life.thread.start()
        return {"address": instance.address}

    def _suspend(self, name: str) -> dict[str, str]:
        life = self._lives.get(name)
        if life is not None:
            self._ask_to_end(life)
        return {}

    def _ask_to_end(self, life: Life) -> None:
        """What is not up yet is ended at once, whatever it is doing; what is up leaves its log first."""
        life.to_end.set()
        if not life.up:
            self._fleet.kill(life.node.name)

    def _live(self, life: Life) -> None:
        name, reason = life.node.name, ""
        try:
            self._bring_up(life)
            self._watch(life)
        except (HostsError, OSError) as error:
            if not life.to_end.is_set():
                reason = failure_line(error) if isinstance(error, HostsError) else f"{name}: {error}"
        self._release(life)
        if reason:
            self._give_up(life.node, reason, was_up=life.up)
        elif not self._stopping:
            self._progress.update("host", name, "waiting", "powered down")

    def _bring_up(self, life: Life) -> None:
        if life.before is not None:
            life.before.thread.join(ENDING_S)
            life.before = None
        name = life.node.name
        if life.to_end.is_set():
            return
        (host,) = self._fleet.boot(host_spec(life.node, life.instance.address))
        if life.to_end.is_set():  # asked while there was no process yet that could be ended
            return
        self._progress.update("host", name, "running", f"up in {host.boot_s:.1f} s, set-up starts")
        self._cluster.set_up(host, life.node)
        self._fleet.start_slurm(host)
        life.up = True
        self._progress.update("host", name, "ok", "bootstrap done, joined Slurm")

    def _watch(self, life: Life) -> None:
        """Until the node is to end. HostsError: its host died."""
        while not life.to_end.wait(WATCH_S):
            if not self._fleet.hosts[life.node.name].alive():
                raise HostsError(f"{life.node.name}: its host died")

    def _release(self, life: Life) -> None:
        name = life.node.name
        host = self._fleet.hosts.get(name)
        if host is not None and not self._stopping:  # at the end of the rehearsal all logs are collected together
            self._cluster.keep_log(host)
        with contextlib.suppress(HostsError):
            self._fleet.end(name)
        self._cluster.terminate(life.instance)
        with self._lock:
            if self._lives.get(name) is life:
                del self._lives[name]

    def _give_up(self, node: Node, reason: str, *, was_up: bool) -> None:
        self._progress.update("host", node.name, "failed", reason.splitlines()[0])
        self._daemon.update(f"nodename={node.name}", "state=down", f"reason={REASON}")
        self._daemon.update(f"nodename={node.name}", "state=power_down_force")
        if not was_up:
            self._daemon.count_failure(node.queue, reason)

    def _power_down_later(self, node: Node) -> None:
        """Slurm itself leaves a node down for good whose resume program set it down."""
        update = (f"nodename={node.name}", "state=power_down_force")
        pause = threading.Timer(NO_CAPACITY_PAUSE_S, self._daemon.update, update)
        pause.daemon = True
        pause.start()
