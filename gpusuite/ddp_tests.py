"""Test the communication of all GPUs: collectives (right and fast), and training with DDP or FSDP.

    torchrun --standalone --nproc_per_node=8 ddp_tests.py --iters=50 --numel=2000000
    srun --ntasks-per-node=8 --gpus-per-node=8 python ddp_tests.py            (one task a GPU, no launcher)
    mpirun -np 8 python ddp_tests.py
    python ddp_tests.py                                        (starts torchrun itself, with all GPUs of this machine)

Exit codes: gpusuite/reports.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gpusuite import reports
from gpusuite.devices import CudaError, find_gpus
from gpusuite.judgement import number
from gpusuite.launch import LaunchError, Rank, device_index, find_rank

ALLREDUCE = "ddp_allreduce_result.json"
TRAININGS = {"DDP": "ddp_training_result.json", "FSDP": "fsdp_training_result.json"}
# Name of nccl-tests -> how a message names it and what it got wrong.
COLLECTIVES = {
    "all_reduce": ("all-reduce", "sums"),
    "all_gather": ("all-gather", "data"),
    "reduce_scatter": ("reduce-scatter", "sums"),
    "alltoall": ("all-to-all", "data"),
    "sendrecv": ("send and receive", "data"),
}
FAULTS = {
    "wrong": "changes an element",
    "loss": "trains with a learning rate of 0, as all other ranks then do",
    "hang": "does not arrive",
    "stall": "arrives, and is stopped (SIGSTOP)",
}
ANSWER_S = 10.0
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ITERS, _STEPS = (50, 20), (40, 20)  # without and with --quick
_QUICK_SIZE = 1 << 30  # larger ones are left out with --quick


class Group:
    """The processes of the test, with a store of their own in which each says where it is."""

    def __init__(self, rank: Rank, cpu: bool, timeout_s: float) -> None:
        import torch
        from torch import distributed

        self.rank, self.timeout_s, self.torch, self.distributed = rank, timeout_s, torch, distributed
        if cpu:
            self.device = torch.device("cpu")
        else:
            self.device = torch.device("cuda", device_index(rank, torch.cuda.device_count()))
            torch.cuda.set_device(self.device)
        within = timedelta(seconds=timeout_s)
        listens = rank.rank == 0 and not rank.agent_store
        try:
            store = distributed.TCPStore(rank.address, rank.port, rank.world, listens, within, wait_for_workers=False)
        except RuntimeError:
            if not listens:
                where = f"rank 0 at {rank.address}, port {rank.port}"
                end(f"{reports.node_name()} rank {rank.rank}: {where} did not answer within {timeout_s:.0f} s")
            raise
        self._store = distributed.PrefixStore("gpusuite", store)
        with self.phase("init"):
            backend = "gloo" if cpu else "nccl"
            shared = distributed.PrefixStore("group", store)
            distributed.init_process_group(backend, store=shared, rank=rank.rank, world_size=rank.world, timeout=within)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Run a part of the test within the time-out; else print which ranks did not arrive at it, and end.

        The process ends by os._exit: a collective, or the end of the group, could wait for the missing rank forever.
        """
        watchdog = threading.Timer(self.timeout_s, self._late, [name])
        watchdog.daemon = True
        watchdog.start()
        started = time.monotonic()
        try:
            self._store.set(f"{name}/{self.rank.rank}", reports.node_name())
            yield
        except RuntimeError:
            if time.monotonic() - started > 0.9 * self.timeout_s:  # gloo's own time-out: it names no rank
                self._late(name)
            raise
        finally:
            watchdog.cancel()

    def _late(self, name: str) -> None:
        """Print who is missing, and end. Rank 0 keeps the list: if its host stopped, the question hangs as well."""
        where: list[str] = []
        asking = threading.Thread(target=lambda: where.append(self._missing(name)), daemon=True)
        asking.start()
        asking.join(ANSWER_S)
        known = where[0] if where else "rank 0, which keeps the list of those that arrived, does not answer"
        end(f"{name} did not end within {self.timeout_s:.0f} s on rank {self.rank.rank}: {known}")

    def _missing(self, name: str) -> str:
        missing = [rank for rank in range(self.rank.world) if not self._store.check([f"{name}/{rank}"])]
        return f"{self.named(missing)} did not arrive" if missing else "all ranks arrived, and wait"

    def named(self, ranks: Iterable[int]) -> str:
        """Return the ranks by node: `ranks 8, 9 on gpu-2`. The node of a rank that never arrived is not known."""
        nodes: dict[str, list[int]] = {}
        for rank in ranks:
            nodes.setdefault(self.node(rank), []).append(rank)
        parts = (f"ranks {', '.join(map(str, mine))}{f' on {node}' if node else ''}" for node, mine in nodes.items())
        return "; ".join(parts)

    def node(self, rank: int) -> str:
        """The name of the node of a rank; empty if it did not arrive."""
        key = f"init/{rank}"
        return str(self._store.get(key).decode()) if self._store.check([key]) else ""

    def of_each(self, value: float) -> list[float]:
        """The number that each rank has given, by rank."""
        values = self.torch.zeros(self.rank.world, dtype=self.torch.float64, device=self.device)
        values[self.rank.rank] = value
        self.distributed.all_reduce(values)
        return [float(one) for one in values.tolist()]

    def say_of_each(self, what: str, texts: Sequence[str]) -> None:
        """Print a line for each rank, with its node; on rank 0."""
        for rank, text in enumerate(texts if self.rank.rank == 0 else ()):
            reports.say("DDP", f"rank {rank} on {self.node(rank)}: {what}: {text}")

    def wait(self) -> None:
        """Wait for the device and for all ranks."""
        self.of_each(0)
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)


def end(why: str) -> None:
    """Print the result and end this process without waiting for any other."""
    print(f"[RESULT] {reports.FAILURE}: [{why}]", flush=True)
    os._exit(reports.EXIT_FAILURE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the test that the flags ask for, on the rank that the launcher has given."""
    arguments = _parser().parse_args(argv)
    arguments.iters = arguments.iters or _ITERS[arguments.quick]
    arguments.steps = arguments.steps or _STEPS[arguments.quick]
    try:
        rank, sizes, names = find_rank(os.environ), _sizes(arguments), _collectives(arguments.collectives)
        _check_fault(arguments, None if rank.launcher == "none" else rank.world)
    except (LaunchError, ValueError) as error:
        reports.complain(str(error))
        return reports.EXIT_INPUT
    if arguments.all and arguments.report_name:
        reports.complain("--all writes three reports, and --report-name names one. Hint: leave it out")
        return reports.EXIT_INPUT
    try:
        gpus = [] if arguments.cpu else find_gpus()
    except CudaError as error:
        return reports.result([f"{reports.node_name()}: {error}"])
    if not gpus and not arguments.cpu:
        expected = arguments.expect_gpus or 0
        if arguments.inject and not expected:
            reports.complain(f"--inject {arguments.inject}: there is no GPU on this machine. Hint: leave it out")
            return reports.EXIT_INPUT
        failures = [f"{reports.node_name()}: no GPU, expected {expected}"] if expected else []
        return reports.result(failures, "no GPU on this machine: no test was run")
    try:
        _check_fault(arguments, max(1, len(gpus)) if rank.launcher == "none" else rank.world)
    except ValueError as error:
        reports.complain(str(error))
        return reports.EXIT_INPUT
    if reports.unfit():
        return reports.EXIT_ENVIRONMENT
    if rank.launcher == "none" and len(gpus) > 1:
        _launch(len(gpus), sys.argv[1:] if argv is None else argv)
    if rank.world == 1:
        rank = Rank("none", 0, 1, 0, rank.address, 0)
    try:
        return _run(arguments, rank, [(name, size) for name in names for size in sizes])
    except Exception as error:
        end(f"{reports.node_name()} rank {rank.rank}: {type(error).__name__}: {' '.join(str(error).split())[:400]}")
    return reports.EXIT_FAILURE


def _launch(count: int, argv: Sequence[str]) -> None:
    """Start this program again as one process a GPU, with torchrun."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={count}"]
    sys.stdout.flush()
    os.execv(sys.executable, [*launcher, str(Path(__file__).resolve()), *argv])  # noqa: S606  (the same arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Test the communication of all GPUs.")
    reports.add_common(parser, ", ".join([ALLREDUCE, *TRAININGS.values()]))
    parser.set_defaults(report_name=None)
    parser.add_argument(
        "--iters",
        type=reports.whole(1, 1_000_000),
        metavar="N",
        help=f"collectives of each size (default: {_ITERS[0]}, with --quick {_ITERS[1]})",
    )
    parser.add_argument(
        "--numel",
        type=reports.whole(1, 1 << 36),
        default=2_000_000,
        metavar="N",
        help="fp32 elements (default: 2000000)",
    )
    parser.add_argument(
        "--sizes",
        type=reports.filled,
        metavar="LIST",
        help="bytes to measure instead of --numel: 1M,64M,1G; --quick takes 1G at most",
    )
    names = f"which to measure, separated by commas: {','.join(COLLECTIVES)} (default: all_reduce)"
    parser.add_argument("--collectives", default="all_reduce", metavar="LIST", help=names)
    parser.add_argument("--train-smoke", action="store_true", help="train a small network instead of collectives")
    parser.add_argument("--fsdp", action="store_true", help="train with FSDP instead of DDP")
    every = "collectives, training with DDP, training with FSDP, one after the other; a report of each"
    parser.add_argument("--all", action="store_true", help=every)
    parser.add_argument(
        "--epochs", type=reports.whole(1, 1_000_000), default=1, metavar="N", help="epochs of training (default: 1)"
    )
    steps = f"steps an epoch (default: {_STEPS[0]}, with --quick {_STEPS[1]})"
    parser.add_argument("--steps", type=reports.whole(1, 1_000_000), metavar="N", help=steps)
    parser.add_argument(
        "--batch-size", type=reports.whole(1, 1_000_000), default=64, metavar="N", help="samples a rank (default: 64)"
    )
    parser.add_argument(
        "--least-gb-per-s", type=reports.above_zero, metavar="X", help="least bus bandwidth of the largest size"
    )
    parser.add_argument(
        "--timeout", type=reports.above_zero, default=120, metavar="S", help="of each part (default: 120 s)"
    )
    parser.add_argument(
        "--expect-gpus", type=reports.whole(0, 1_000_000), metavar="N", help="fewer ranks are a failure"
    )
    parser.add_argument("--cpu", action="store_true", help="for tests: gloo on the CPU; the figures mean nothing")
    inject = f"for tests: a fault on one rank: {'; '.join(f'{kind}:1 {what}' for kind, what in FAULTS.items())}"
    parser.add_argument("--inject", type=reports.filled, metavar="KIND:RANK", help=inject)
    return parser


def _sizes(arguments: argparse.Namespace) -> list[int]:
    """Return the sizes in bytes. Raises ValueError if a size is not written as 4096, 64M or 1G."""
    if not arguments.sizes:
        return [4 * arguments.numel]
    found = []
    for text in arguments.sizes.split(","):
        match = re.fullmatch(r"([0-9]{1,12})([KMG]?)", text)
        if match is None or int(match[1]) * _UNITS[match[2]] < 4:
            raise ValueError(f"--sizes {arguments.sizes}: {text!r} is no size of 4 bytes or more. Hint: 1M,64M,1G")
        found.append(int(match[1]) * _UNITS[match[2]])
    return [size for size in found if size <= _QUICK_SIZE] or [min(found)] if arguments.quick else found


def _collectives(text: str) -> list[str]:
    """Return the names in their order. Raises ValueError for a name that COLLECTIVES does not have."""
    names = text.split(",")
    wrong = [name for name in names if name not in COLLECTIVES]
    if wrong:
        raise ValueError(
            f"--collectives {text}: {wrong[0]!r} is not one of the collectives. Hint: {','.join(COLLECTIVES)}"
        )
    return [name for name in COLLECTIVES if name in names]


def _check_fault(arguments: argparse.Namespace, world: int | None) -> None:
    """Raise ValueError for a fault that no rank would have or no test would find. world: None before it is known."""
    text = arguments.inject
    if not text:
        return
    kind, _, number_of = text.partition(":")
    trains = arguments.train_smoke or arguments.fsdp or arguments.all
    why = ""
    if kind not in FAULTS or not number_of.isdigit() or (world is not None and int(number_of) >= world):
        why = f"must be KIND:RANK, with KIND one of {', '.join(FAULTS)} and RANK one of the ranks. Hint: wrong:0"
    elif kind == "wrong" and trains and not arguments.all:
        why = "training does not find a wrong element. Hint: without --train-smoke and --fsdp, or with --all"
    elif kind == "loss" and not trains:
        why = "only training finds it. Hint: add --train-smoke, --fsdp or --all"
    elif kind in ("hang", "stall") and world == 1:
        why = "one rank waits for no other. Hint: start two or more"
    if why:
        raise ValueError(f"--inject {text}: {why}")


def _run(arguments: argparse.Namespace, rank: Rank, collectives: Sequence[tuple[str, int]]) -> int:
    if arguments.inject == f"hang:{rank.rank}":
        time.sleep(arguments.timeout * 3)
    group, failures, code = Group(rank, arguments.cpu, arguments.timeout), [], reports.EXIT_GOOD
    if arguments.inject == f"stall:{rank.rank}":
        os.kill(os.getpid(), signal.SIGSTOP)
    nodes = [group.node(one) for one in range(rank.world)] if rank.rank == 0 else []
    missing = []
    if arguments.expect_gpus and rank.world < arguments.expect_gpus:
        missing = [f"{rank.world} ranks, expected {arguments.expect_gpus}. Hint: one rank a GPU"]
    for name, test in _tests(arguments, group, collectives):
        started = time.monotonic()
        found, wrong = test()
        report = {"schema": 1, "date": reports.now(), "launcher": rank.launcher, "world_size": rank.world}
        report.update(_versions(group), nodes=nodes, took_s=round(time.monotonic() - started, 1), **found)
        failures += wrong
        report.update(result=reports.FAILURE if missing or wrong else reports.SUCCESS, failures=missing + wrong)
        if rank.rank == 0 and not reports.write(arguments.report_dir, arguments.report_name or name, report):
            code = reports.EXIT_ENVIRONMENT
    return _conclude(group, missing + failures, code)


_Tested = tuple[dict[str, Any], list[str]]  # what a report has of its own, and the failures


def _tests(
    arguments: argparse.Namespace, group: Group, collectives: Sequence[tuple[str, int]]
) -> list[tuple[str, Callable[[], _Tested]]]:
    """Return the tests that the flags ask for, each with the name of its report."""
    moving = (ALLREDUCE, lambda: _moving(arguments, group, collectives))
    training = [(name, partial(_training, arguments, group, mode)) for mode, name in TRAININGS.items()]
    if arguments.all:
        return [moving, *training]
    if arguments.train_smoke or arguments.fsdp:
        return [training[arguments.fsdp]]
    return [moving]


def _moving(arguments: argparse.Namespace, group: Group, collectives: Sequence[tuple[str, int]]) -> _Tested:
    rows = [_measured(arguments, group, name, size) for name, size in collectives]
    report: dict[str, Any] = {
        "allreduce": [row for row in rows if row["collective"] == "all_reduce"],
        "collectives": [row for row in rows if row["collective"] != "all_reduce"],
        "ok": all(row["ok"] for row in rows),
    }
    return report, _slow_or_wrong(arguments.least_gb_per_s, rows, group.named)


def _versions(group: Group) -> dict[str, Any]:
    cuda = group.device.type == "cuda"
    nccl = ".".join(map(str, group.torch.cuda.nccl.version())) if cuda else None
    versions = {"torch": group.torch.__version__, "cuda": group.torch.version.cuda, "nccl": nccl}
    return {**versions, "backend": group.distributed.get_backend()}


def _slow_or_wrong(least: float | None, rows: Sequence[dict[str, Any]], named: Callable[[list[int]], str]) -> list[str]:
    """Return the failures. least: bus bandwidth in GB/s of the last size of each collective; named: ranks by node."""
    failures, last = [], {row["collective"]: row for row in rows}
    for row in rows:
        name, wrong = COLLECTIVES[row["collective"]]
        what = f"{name} of {row['bytes']} bytes"
        if not row["ok"]:
            failures.append(f"{what}: wrong {wrong} in {row['wrong']} checks: {named(row['wrong_ranks'])}")
        if least and row is last[row["collective"]] and not row["busbw_gb_per_s"] >= least:
            bandwidth = f"bus bandwidth {number(row['busbw_gb_per_s'])} GB/s, expected at least {number(least)}"
            failures.append(f"{what}: {bandwidth}")
    return failures


def _measured(arguments: argparse.Namespace, group: Group, name: str, size: int) -> dict[str, Any]:
    """Check each of the iterations of a collective, then time as many back to back."""
    from gpusuite.collectives import Transfer, bus_factor, transfer

    torch, rank, world = group.torch, group.rank.rank, group.rank.world
    with group.phase(f"{COLLECTIVES[name][0]} of {size}"):
        one: Transfer = transfer(name, size, rank, world, group.device)
        wrong = 0
        for _ in range(arguments.iters):
            one.reset()
            one.run()
            if arguments.inject == f"wrong:{rank}":
                one.receive[one.receive.numel() // 2] += 1
            wrong += int(not torch.equal(one.receive, one.expected))
        one.receive.fill_(1e-30)  # never infinite, whatever the number of iterations
        times = _timed(group, one.run, arguments.iters)
        wrong_of = [int(count) for count in group.of_each(wrong)]
    moved, seconds = 4 * max(one.send.numel(), one.receive.numel()), max(times)
    algorithm = moved / seconds / 1e9
    row = {
        "collective": name,
        "bytes": moved,
        "numel": moved // 4,
        "iters": arguments.iters,
        "time_us": seconds * 1e6,
        "algbw_gb_per_s": algorithm,
        "busbw_gb_per_s": algorithm * bus_factor(name, world),
        "wrong": sum(wrong_of),
        "wrong_ranks": [other for other in range(world) if wrong_of[other]],
        "ok": not any(wrong_of),
    }
    if rank == 0:
        text = f"{row['time_us']:.1f} us, bus bandwidth {number(row['busbw_gb_per_s'])} GB/s"
        reports.say("DDP", f"{name} world={world} numel={row['numel']} bytes={moved} {text} ok={row['ok']}")
    if arguments.verbose:
        counts = [f"{1e6 * times[of]:.1f} us, {wrong_of[of]} of {arguments.iters} checks wrong" for of in range(world)]
        group.say_of_each(f"{name} of {moved} bytes", counts)
    return row


def _timed(group: Group, run: Callable[[], Any], iterations: int) -> list[float]:
    """Seconds of one collective, back to back: five to warm up, then the average of each rank."""
    elapsed = 0.0
    for repeats in (5, iterations):
        group.wait()
        started = time.perf_counter()
        for _ in range(repeats):
            run()
        if group.device.type == "cuda":
            group.torch.cuda.synchronize(group.device)
        elapsed = (time.perf_counter() - started) / repeats
    return group.of_each(elapsed)


def _training(arguments: argparse.Namespace, group: Group, mode: str) -> _Tested:
    from gpusuite.distributed_training import train

    rate = 0.0 if (arguments.inject or "").startswith("loss:") else 1e-3
    with group.phase(f"{mode} training"):
        found = train(group.device, mode, arguments.epochs, arguments.steps, arguments.batch_size, rate)
        finite = not any(group.of_each(float(not found["gradients_finite"])))
        checksums = group.of_each(found["checksum"])
        equal = all(checksum == checksums[0] for checksum in checksums)
    losses = found.pop("losses")
    why = [
        text
        for wrong, text in (
            (not found["improved"], f"the loss does not fall: {found['start_loss']:.4g} to {found['end_loss']:.4g}"),
            (not finite, "gradients are not finite"),
            (not equal, "the ranks end with different weights"),
        )
        if wrong
    ]
    found.update(mode=mode, gradients_finite=finite, weights_equal=equal, ok=not why, why="; ".join(why))
    if group.rank.rank == 0:
        ends = f"start_loss={found['start_loss']:.5f} end_loss={found['end_loss']:.5f} improved={found['improved']}"
        text = f"{mode} training world={group.rank.world} {ends} weights_equal={equal} ok={not why}"
        reports.say("DDP", text)
        for step, loss in enumerate(losses if arguments.verbose else ()):
            reports.say("DDP", f"{mode} training step {step}: loss {loss:.5f}")
    if arguments.verbose:
        group.say_of_each(f"{mode} training", [f"checksum {one:.9g}" for one in checksums])
    return found, [f"{mode} training: {found['why']}"] if why else []


def _conclude(group: Group, failures: list[str], code: int) -> int:
    """Print the result on rank 0; every rank returns the same code, and none waits for another."""
    if group.rank.rank == 0:
        reports.result(failures)
    sys.stdout.flush()
    with group.phase("the end"):
        group.wait()
    os._exit(reports.EXIT_FAILURE if failures else code)


if __name__ == "__main__":
    sys.exit(reports.run(main, unwinds=False))
