"""A debug log to measure with: jobs of 16 nodes x 8 GPUs over EFA on a cluster of 64, always the same bytes.

Each rank says what NCCL 2.2x and its EFA plugin say at NCCL_DEBUG=INFO, as often as they say it (some 165 lines a
rank); the ranks' lines are mixed as they arrive, and each job has its table. The figures are made up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

HOSTS = 64  # nodes of the cluster
NODES = 16  # nodes of a job
GPUS = 8
NICS = 32
SIZES = [8 << n for n in range(32)]
RANKS = NODES * GPUS


def write_log(path: Path, size: int) -> int:
    """Write whole jobs until the file has `size` bytes at least; return the number of jobs."""
    jobs = 0
    with path.open("wb") as stream:
        while stream.tell() < size:
            for part in _job(random.Random(jobs), jobs):  # noqa: S311 - made-up figures, the same in each run
                stream.write(part.encode())
            jobs += 1
    return jobs


def _job(chance: random.Random, number: int) -> Iterator[str]:
    hosts = [f"gpu-st-p5-{(number * NODES + i) % HOSTS + 1}" for i in range(NODES)]
    pids = [chance.randrange(2_000, 90_000) for _ in range(RANKS)]
    yield _banner(hosts, pids)
    for stage in (_start, _plugin, _setup, _channels, _end):
        yield _mixed(chance, [stage(chance, hosts[r // GPUS], pids[r], r) for r in range(RANKS)])
        if stage is _channels:
            yield _table(chance)


def _mixed(chance: random.Random, ranks: list[list[str]]) -> str:
    """Join the ranks' lines as they arrive: a few lines of one rank, then of another."""
    waiting = [iter(lines) for lines in ranks]
    out: list[str] = []
    while waiting:
        at = chance.randrange(len(waiting))
        for _ in range(chance.randrange(1, 12)):
            line = next(waiting[at], None)
            if line is None:
                waiting.pop(at)
                break
            out.append(line)
    return "".join(out)


def _banner(hosts: list[str], pids: list[int]) -> str:
    lines = [
        "# nccl-tests version 2.17.9 nccl-headers=22803 nccl-library=22803",
        "# Collective test starting: all_reduce_perf",
        f"# nThread 1 nGpus 1 minBytes {SIZES[0]} maxBytes {SIZES[-1]} step: 2(factor) warmup iters: 5 iters: 20"
        " agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    for rank, pid in enumerate(pids):
        place = f"[0000:{0x53 + rank % GPUS:02x}:00]"
        host = hosts[rank // GPUS]
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {pid:6d} on {host:>10s} device {rank % GPUS:2d} {place} NVIDIA H100"
        )
    return "\n".join(lines) + "\n"


def _said(host: str, pid: int, rank: int, messages: list[str]) -> list[str]:
    head = f"{host}:{pid}:{pid + 41} [{rank % GPUS}] NCCL INFO "
    return [f"{head}{message}\n" for message in messages]


def _start(chance: random.Random, host: str, pid: int, rank: int) -> list[str]:
    address = f"10.0.{rank // GPUS}.{chance.randrange(2, 250)}"
    return _said(
        host,
        pid,
        rank,
        [f"Bootstrap : Using ens32:{address}<0>", "cudaDriverVersion 12080", "NCCL version 2.28.3+cuda12.9"],
    )


def _plugin(_: random.Random, host: str, pid: int, rank: int) -> list[str]:
    messages = [
        "NET/Plugin: Failed to find ncclCollNetPlugin_v9 symbol.",
        "NET/OFI Initializing aws-ofi-nccl 1.17.2",
        "NET/OFI Using Libfabric version 2.1",
        "NET/OFI Using CUDA driver version 12080 with runtime 12090",
        "NET/OFI Configuring AWS-specific options",
        "NET/OFI Setting NCCL_NVLS_CHUNKSIZE to 512KiB",
        "NET/OFI Setting NCCL_NET_FORCE_FLUSH=0 for Hopper GPUs",
        "NET/OFI Internode latency set at 75.0 us",
        "NET/OFI Using transport protocol RDMA (platform set)",
        f"NET/OFI Selected provider is efa, fabric is efa-direct (found {NICS} nics)",
    ]
    messages += ["NET/OFI Libfabric provider associates MRs with domains"] * 41
    messages += [f"NET/OFI NIC group {i // 4} device #{i % 4} 0000:{79 + i:02x}:00.0" for i in range(NICS)]
    return _said(host, pid, rank, [*messages, "Using network AWS Libfabric"])


def _setup(chance: random.Random, host: str, pid: int, rank: int) -> list[str]:
    comm, unique = chance.randrange(1 << 46), 0x4A1D7C0FFEE123
    card = f"cudaDev {rank % GPUS} nvmlDev {rank % GPUS} busId {0x53 + rank % GPUS:x}000"
    opening = f"ncclCommInitRankConfig comm 0x{comm:x} rank {rank} nranks {RANKS} {card} commId 0x{unique:x} - Init"
    near = f"{(rank + 1) % RANKS}/-1/-1->{rank}->{rank - 1}"
    messages = [
        f"{opening} START",
        "NCCL_TOPO_FILE set by environment to /opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p5.48xl-topo.xml",
        f"Setting affinity for GPU {rank % GPUS} to 0-47,96-143",
        "NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)",
        f"comm 0x{comm:x} rank {rank} nRanks {RANKS} nNodes {NODES} localRanks {GPUS} localRank {rank % GPUS} MNNVL 0",
        "NVLS Head  0:  " + "  ".join(str(i * GPUS) for i in range(NODES)),
        "Trees " + " ".join(f"[{i}] {near}" for i in range(16)),
        "P2P Chunksize set to 131072",
        "threadThresholds 8/8/64 | 1024/8/64 | 512 | 512",
        "16 coll channels, 16 collnet channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer",
        "DMA-BUF is available on GPU device 0",
        f"{opening} COMPLETE",
        "Init timings - ncclCommInitRankConfig: total 2.91 (kernels 0.22, alloc 0.31, bootstrap 0.91, topo 0.38)",
    ]
    if rank % GPUS == 0:
        ring = "   ".join(str((rank + i) % RANKS) for i in range(RANKS))
        messages += [f"Channel {i:02d}/16 :    {ring}" for i in range(4)]
    return _said(host, pid, rank, messages)


def _channels(_: random.Random, host: str, pid: int, rank: int) -> list[str]:
    here, there, far = f"{rank}[{rank % GPUS}]", rank - rank % GPUS + (rank + 1) % GPUS, (rank + GPUS) % RANKS
    messages = [f"Channel {i:02d}/0 : {here} -> {there}[{there % GPUS}] via P2P/CUMEM" for i in range(28)]
    for i in range(16):
        back = (rank - GPUS) % RANKS
        messages.append(
            f"Channel {i:02d}/0 : {back}[{back % GPUS}] -> {here} [receive] via NET/AWS Libfabric/{i % 4}/GDRDMA"
        )
        messages.append(
            f"Channel {i:02d}/0 : {here} -> {far}[{far % GPUS}] [send] via NET/AWS Libfabric/{i % 4}/GDRDMA"
        )
    return _said(host, pid, rank, [*messages, "Connected all rings", "Connected all trees", "Connected NVLS tree"])


def _end(chance: random.Random, host: str, pid: int, rank: int) -> list[str]:
    return _said(
        host, pid, rank, [f"comm 0x{chance.randrange(1 << 46):x} rank {rank} nranks {RANKS} - Destroy COMPLETE"]
    )


def _table(chance: random.Random) -> str:
    titles = f"{'time':>7s}  {'algbw':>6s}  {'busbw':>6s}  {'#wrong':>6s}"
    lines = [f"#       size         count      type   redop    root  {titles}  {titles} "]
    for size in SIZES:
        sides = ""
        for _ in range(2):
            time_us = (90 + size / 190e3) * chance.uniform(0.98, 1.02)
            shown = f"{time_us:7.2f}" if time_us < 10_000 else f"{time_us:7.1f}" if time_us < 1e5 else f"{time_us:7.0f}"
            algbw = size / float(shown) / 1e3
            sides += f"  {shown}  {algbw:6.2f}  {algbw * 2 * (RANKS - 1) / RANKS:6.2f}       0"
        lines.append(f"{size:12d}  {size // 4:12d}     float     sum      -1{sides}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 101.25 ", "#"]
    return "\n".join([*lines, "# Collective test concluded: all_reduce_perf", "", ""])
