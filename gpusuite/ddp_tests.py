"""Test the communication of all GPUs: all-reduce (right and fast), and training with DDP or FSDP.

    torchrun --standalone --nproc_per_node=8 ddp_tests.py --iters=50 --numel=2000000
    srun --ntasks-per-node=8 --gpus-per-node=8 python ddp_tests.py            (one task a GPU, no launcher)
    mpirun -np 8 python ddp_tests.py
    python ddp_tests.py                                        (starts torchrun itself, with all GPUs of this machine)

Exit codes: 0 good, or no GPU (skipped); 1 a test failed or a rank did not arrive; 2 wrong use; 3 torch is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from gpusuite import reports
from gpusuite.devices import CudaError, find_gpus
from gpusuite.judgement import number
from gpusuite.launch import LaunchError, Rank, device_index, find_rank

ALLREDUCE, TRAINING = "ddp_allreduce_result.json", "ddp_training_result.json"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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
        store = distributed.TCPStore(rank.address, rank.port, rank.world, listens, within, wait_for_workers=False)
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
        self._store.set(f"{name}/{self.rank.rank}", reports.node_name())
        watchdog = threading.Timer(self.timeout_s, self._late, [name])
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()

    def _late(self, name: str) -> None:
        missing = [rank for rank in range(self.rank.world) if not self._store.check([f"{name}/{rank}"])]
        where = f"ranks {', '.join(map(str, missing))} did not arrive" if missing else "all ranks arrived, and wait"
        end(f"{name} did not end within {self.timeout_s:.0f} s on rank {self.rank.rank}: {where}")

    def sum_of(self, value: float) -> float:
        """The sum of a number over all ranks."""
        total = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.distributed.all_reduce(total)
        return float(total)

    def wait(self) -> None:
        """Wait for the device and for all ranks."""
        self.sum_of(0)
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)


def end(why: str) -> None:
    """Print the result and end this process without waiting for any other."""
    print(f"[RESULT] {reports.FAILURE}: [{why}]", flush=True)
    os._exit(reports.EXIT_FAILURE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the test that the flags ask for, on the rank that the launcher has given."""
    arguments = _parser().parse_args(argv)
    try:
        rank, sizes = find_rank(os.environ), _sizes(arguments)
    except (LaunchError, ValueError) as error:
        return reports.wrong_use(str(error))
    try:
        gpus = [] if arguments.cpu else find_gpus()
    except CudaError as error:
        return reports.result([f"{reports.node_name()}: {error}"])
    if not gpus and not arguments.cpu:
        expected = arguments.expect_gpus or 0
        failures = [f"{reports.node_name()}: no GPU, expected {expected}"] if expected else []
        return reports.result(failures, "no GPU on this machine: no test was run")
    if importlib.util.find_spec("torch") is None:
        reports.wrong_use(f"{sys.executable} has no torch. Hint: run in an image with torch")
        return reports.EXIT_ENVIRONMENT
    if rank.launcher == "none" and len(gpus) > 1:
        _launch(len(gpus), sys.argv[1:] if argv is None else argv)
    if rank.world == 1:
        rank = Rank("none", 0, 1, 0, rank.address, 0)
    try:
        return _run(arguments, rank, sizes)
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
    reports.add_common(parser, f"{ALLREDUCE}, {TRAINING}")
    parser.set_defaults(report_name=None)
    parser.add_argument(
        "--iters",
        type=reports.whole(1, 1_000_000),
        default=50,
        metavar="N",
        help="all-reduces of each size (default: 50)",
    )
    parser.add_argument(
        "--numel",
        type=reports.whole(1, 1 << 36),
        default=2_000_000,
        metavar="N",
        help="fp32 elements (default: 2000000)",
    )
    parser.add_argument("--sizes", metavar="LIST", help="bytes to measure instead of --numel: 1M,64M,1G")
    parser.add_argument("--train-smoke", action="store_true", help="train a small network instead of all-reduces")
    parser.add_argument("--fsdp", action="store_true", help="train with FSDP instead of DDP")
    parser.add_argument(
        "--epochs", type=reports.whole(1, 1_000_000), default=1, metavar="N", help="epochs of training (default: 1)"
    )
    parser.add_argument(
        "--steps", type=reports.whole(1, 1_000_000), default=40, metavar="N", help="steps an epoch (default: 40)"
    )
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
    inject = "for tests: a fault on one rank: wrong:1 (an element), loss:1 (no learning), hang:1 (does not arrive)"
    parser.add_argument("--inject", default="", metavar="KIND:RANK", help=inject)
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
    return found


def _run(arguments: argparse.Namespace, rank: Rank, sizes: Sequence[int]) -> int:
    if arguments.inject == f"hang:{rank.rank}":
        time.sleep(arguments.timeout * 3)
    group = Group(rank, arguments.cpu, arguments.timeout)
    report: dict[str, Any] = {"schema": 1, "date": reports.now(), "launcher": rank.launcher, "world_size": rank.world}
    report.update(_versions(group))
    failures = []
    if arguments.expect_gpus and rank.world < arguments.expect_gpus:
        failures.append(f"{rank.world} ranks, expected {arguments.expect_gpus}. Hint: one rank a GPU")
    if arguments.train_smoke or arguments.fsdp:
        report.update(_training(arguments, group))
        if not report["ok"]:
            failures.append(f"{report['mode']} training: {report['why']}")
    else:
        report["allreduce"] = [_allreduce(arguments, group, size) for size in sizes]
        report["ok"] = all(one["ok"] for one in report["allreduce"])
        failures += _slow_or_wrong(arguments, report["allreduce"])
    return _conclude(arguments, group, report, failures)


def _versions(group: Group) -> dict[str, Any]:
    cuda = group.device.type == "cuda"
    nccl = ".".join(map(str, group.torch.cuda.nccl.version())) if cuda else None
    versions = {"torch": group.torch.__version__, "cuda": group.torch.version.cuda, "nccl": nccl}
    return {**versions, "backend": group.distributed.get_backend()}


def _slow_or_wrong(arguments: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> list[str]:
    failures = [
        f"all-reduce of {one['bytes']} bytes: wrong sums on ranks {one['wrong_ranks']} in {one['wrong']} checks"
        for one in rows
        if not one["ok"]
    ]
    last, least = rows[-1], arguments.least_gb_per_s
    if least and not last["busbw_gb_per_s"] >= least:
        bandwidth = f"bus bandwidth {number(last['busbw_gb_per_s'])} GB/s, expected at least {number(least)}"
        failures.append(f"all-reduce of {last['bytes']} bytes: {bandwidth}")
    return failures


def _allreduce(arguments: argparse.Namespace, group: Group, size: int) -> dict[str, Any]:
    """Check each of the iterations, then time as many back to back. Bandwidth as nccl-tests defines it.

    The sums are whole numbers below 2^24 up to 4,000 ranks, so that they are exact in fp32.
    """
    torch, rank, world = group.torch, group.rank.rank, group.rank.world
    count = size // 4
    with group.phase(f"all-reduce of {size}"):
        pattern = (torch.arange(count, device=group.device, dtype=torch.int32) % 1021).float()
        expected = pattern * world + world * (world - 1) / 2
        data, wrong = torch.empty_like(pattern), 0
        for _ in range(arguments.iters):
            torch.add(pattern, rank, out=data)
            group.distributed.all_reduce(data)
            if arguments.inject == f"wrong:{rank}":
                data[count // 2] += 1
            wrong += int(not torch.equal(data, expected))
        seconds = _timed(group, data, arguments.iters)
        wrong_ranks = [one for one in range(world) if group.sum_of(float(wrong > 0 and rank == one))]
        total = int(group.sum_of(wrong))
    algorithm = size / seconds / 1e9
    row = {
        "bytes": size,
        "numel": count,
        "iters": arguments.iters,
        "time_us": seconds * 1e6,
        "algbw_gb_per_s": algorithm,
        "busbw_gb_per_s": algorithm * 2 * (world - 1) / world,
        "wrong": total,
        "wrong_ranks": wrong_ranks,
        "ok": total == 0,
    }
    if rank == 0:
        text = f"{row['time_us']:.1f} us, bus bandwidth {number(row['busbw_gb_per_s'])} GB/s"
        reports.say("DDP", f"all_reduce world={world} numel={count} bytes={size} {text} ok={row['ok']}")
    return row


def _timed(group: Group, data: Any, iterations: int) -> float:
    """Seconds of one all-reduce, back to back: five to warm up, then the slowest rank's average."""
    data.fill_(1e-30)  # never infinite, whatever the number of iterations
    elapsed = 0.0
    for repeats in (5, iterations):
        group.wait()
        started = time.perf_counter()
        for _ in range(repeats):
            group.distributed.all_reduce(data)
        if group.device.type == "cuda":
            group.torch.cuda.synchronize(group.device)
        elapsed = (time.perf_counter() - started) / repeats
    slowest = group.torch.tensor([elapsed], dtype=group.torch.float64, device=group.device)
    group.distributed.all_reduce(slowest, op=group.distributed.ReduceOp.MAX)
    return float(slowest)


def _training(arguments: argparse.Namespace, group: Group) -> dict[str, Any]:
    from gpusuite.distributed_training import train

    mode = "FSDP" if arguments.fsdp else "DDP"
    steps = min(arguments.steps, 40) if arguments.quick else arguments.steps
    rate = 0.0 if arguments.inject.startswith("loss:") else 1e-3
    with group.phase(f"{mode} training"):
        found = train(group.device, mode, arguments.epochs, steps, arguments.batch_size, rate)
        finite = group.sum_of(float(not found["gradients_finite"])) == 0
        spread = group.sum_of(float(found["checksum"])) / group.rank.world - found["checksum"]
        equal = group.sum_of(abs(spread)) == 0
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
        losses = f"start_loss={found['start_loss']:.5f} end_loss={found['end_loss']:.5f} improved={found['improved']}"
        text = f"{mode} training world={group.rank.world} {losses} weights_equal={equal} ok={not why}"
        reports.say("DDP", text)
    return found


def _conclude(arguments: argparse.Namespace, group: Group, report: dict[str, Any], failures: list[str]) -> int:
    """Write and print on rank 0; every rank returns the same code, and none waits for another."""
    code = reports.EXIT_FAILURE if failures else reports.EXIT_GOOD
    if group.rank.rank == 0:
        report.update(result=reports.FAILURE if failures else reports.SUCCESS, failures=failures)
        name = arguments.report_name or (TRAINING if "mode" in report else ALLREDUCE)
        if not reports.write(arguments.report_dir, name, report):
            code = code or reports.EXIT_ENVIRONMENT
        reports.result(failures)
    sys.stdout.flush()
    with group.phase("the end"):
        group.wait()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
