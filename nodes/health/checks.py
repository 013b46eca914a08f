"""The table of checks. Each returns findings; what a check cannot see is `unknown`, never `ok`.

`runs` is how many runs in a row a finding must fail before the node is drained: 1 where the hardware itself has
counted an error, more where a busy moment can look like a fault. `heals` marks a fault that may pass without a
repair or that nodes share (file system, clock): it fails, but never drains, since ParallelCluster would replace one
node after the other.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from nodes.health import smi, xid
from nodes.health.ask import Answer
from nodes.health.node import LIMIT_S, SMI_LIMIT_S, Node

STATUSES = ("ok", "unknown", "warn", "fail")
FM_UNIT = "nvidia-fabricmanager.service"
RECOVERY = re.compile(r"reset|reboot|drain|recover", re.I)  # nvmlDeviceGpuRecoveryAction_t; other words are errors
VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
FULL_PERCENT = 95.0
HELD_MIB = 2048  # an idle GPU has 0 to some hundred MiB in use, also with persistence mode and NVLink SHARP
CLOCK_WARN_S = 0.5
CLOCK_FAIL_S = 30.0
FSX_LIMIT_S = 10.0
SMI_DOC = "nvidia-smi(1)"
MEMORY_DOC = "NVIDIA, GPU memory error management, 2025"
FACTS = "slipway/data/instance_types.json"
BOTH_WAYS = "NVIDIA data sheets: 12 links a GPU on A100, 18 on H100, H200, B200; H200 seen by us 2026-11-28"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One observation. subject: `gpu 3`, or empty for the node. mark: changes when the fault gets worse."""

    status: str
    evidence: str
    subject: str = ""
    mark: str = ""


@dataclasses.dataclass(frozen=True)
class Check:
    """One row of the table. limit: what the finding is compared with, and its unit."""

    name: str
    what: str
    limit: str
    source: str
    runs: int
    look: Callable[[Node], Iterator[Finding]]
    heals: bool = False
    only_reports: bool = False


def _gpus(count: int) -> str:
    """1 GPU, 8 GPUs."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _no_gpus(node: Node) -> Iterator[Finding]:
    """Yield the finding of a GPU check on a node without a listed GPU."""
    if node.facts.gpus == 0:
        yield Finding("ok", f"{node.facts.instance_type} has no GPU")
    elif node.listing is None:
        yield Finding("unknown", "nvidia-smi gave no listing")
    elif not node.gpus:
        yield Finding("unknown", "nvidia-smi lists no GPU")


def gpu_answer(node: Node) -> Iterator[Finding]:
    """nvidia-smi answers in time."""
    answer = node.smi_answer if node.facts.gpus != 0 else None
    if answer is None:
        yield Finding("ok", f"{node.facts.instance_type} has no GPU")
    elif answer.problem == "absent" and node.facts.gpus is None:
        yield Finding("unknown", "no nvidia-smi here, and the instance type is not known")
    elif answer.problem == "absent":
        yield Finding("fail", f"nvidia-smi is not installed on this {node.facts.instance_type}")
    elif answer.problem == "hangs":
        yield Finding("fail", f"nvidia-smi does not answer in {SMI_LIMIT_S:.0f} s")
    elif answer.problem:
        yield Finding("unknown", answer.problem)
    elif answer.rc or node.listing is None:
        yield Finding("fail", f"nvidia-smi failed with exit {answer.rc}: {_first_line(answer.out)}")
    else:
        yield Finding("ok", f"{_gpus(len(node.gpus))}, driver {node.listing.driver}, {answer.seconds:.1f} s")


def gpu_count(node: Node) -> Iterator[Finding]:
    """As many GPUs as the instance type has."""
    expected = node.facts.gpus
    if expected is None:
        yield Finding("unknown", "the instance type is not known")
    elif expected == 0 or node.listing is None:
        yield from _no_gpus(node)
    elif len(node.gpus) == expected:
        yield Finding("ok", _gpus(expected))
    else:
        status = "fail" if len(node.gpus) < expected else "warn"
        text = f"{_gpus(len(node.gpus))}, {node.facts.instance_type} has {expected}"
        yield Finding(status, text, mark=str(len(node.gpus)))


def gpu_lost(node: Node) -> Iterator[Finding]:
    """No GPU has fallen off the bus."""
    lost = [gpu for gpu in node.gpus if gpu.lost]
    if smi.LOST.search(node.smi_answer.out) and not lost and node.facts.gpus != 0:
        text = next(line for line in node.smi_answer.out.splitlines() if smi.LOST.search(line)).strip()
        yield Finding("fail", text[:160], f"gpu at {smi.bus(text)}" if smi.bus(text) else "")
    elif lost:
        yield from (Finding("fail", f"lost from the bus ({gpu.bus})", f"gpu {gpu.index}") for gpu in lost)
    elif node.gpus:
        yield Finding("ok", "none")
    else:
        yield from _no_gpus(node)


def gpu_ecc(node: Node) -> Iterator[Finding]:
    """Uncorrectable memory errors."""
    yield from _no_gpus(node)
    for gpu in node.gpus:
        subject, volatile, aggregate = f"gpu {gpu.index}", gpu.volatile_uncorrectable, gpu.aggregate_uncorrectable
        if gpu.unrepairable:
            yield Finding("fail", "memory that cannot be repaired", subject, "unrepairable")
        elif gpu.sram_threshold_exceeded:
            yield Finding("fail", "SRAM error threshold exceeded", subject, "threshold")
        elif volatile:
            yield Finding("fail", f"{volatile} uncorrectable ECC errors", subject, str(volatile))
        elif volatile is None:
            off = "ECC is off" if gpu.ecc_enabled is False else "ECC is not counted"
            yield Finding("warn" if gpu.ecc_enabled is False else "unknown", off, subject)
        elif aggregate:
            yield Finding("warn", f"{aggregate} uncorrectable ECC errors in its life, none since the reset", subject)
        else:
            yield Finding("ok", "0 uncorrectable ECC errors", subject)


def gpu_rows(node: Node) -> Iterator[Finding]:
    """Memory rows that were remapped."""
    yield from _no_gpus(node)
    for gpu in node.gpus:
        subject = f"gpu {gpu.index}"
        if gpu.remap_failure:
            yield Finding("fail", "remapping a memory row failed", subject)
        elif gpu.remap_pending:
            yield Finding("warn", "a remapped row waits for a reset", subject)
        elif gpu.remap_failure is None:
            yield Finding("ok", "no row remapping on this GPU", subject)
        else:
            yield Finding("ok", "none pending, none failed", subject)


def gpu_recovery(node: Node) -> Iterator[Finding]:
    """What the driver itself asks for."""
    yield from _no_gpus(node)
    for gpu in node.gpus:
        action = gpu.recovery_action
        if action:
            status = "fail" if RECOVERY.search(action) else "warn"
            yield Finding(status, f"the driver asks for: {action}", f"gpu {gpu.index}", action)
        else:
            yield Finding("ok", "none asked for", f"gpu {gpu.index}")


def gpu_xid(node: Node) -> Iterator[Finding]:
    """Xid and SXid errors in the kernel log of this boot."""
    if node.facts.gpus == 0:
        yield Finding("ok", f"{node.facts.instance_type} has no GPU")
        return
    known, own_fault = xid.table(), 0
    for event in node.xid_events:
        severity = xid.severity(event, known)
        own_fault += severity == "application"
        if severity != "application":
            subject = node.gpu_of(event.bus) if event.kind == "Xid" else f"nvswitch at {event.bus}"
            yield Finding("fail" if severity == "fatal" else "warn", xid.describe(event, known), subject, event.key)
    if not node.kernel_log.ok:
        yield Finding("unknown", f"the kernel log cannot be read: {_problem(node.kernel_log)}")
    else:
        yield Finding("ok", f"{own_fault} Xids of programs' own faults" if own_fault else "read")


def nvlink(node: Node) -> Iterator[Finding]:
    """Every NVLink of every GPU is up; growing error counters are reported."""
    expected = node.facts.nvlink_links
    if expected == 0:
        yield Finding("ok", f"{node.facts.instance_type} has no NVLink")
        return
    if expected is None or node.listing is None:
        yield Finding("unknown", "the instance type is not known" if expected is None else "nvidia-smi gave no listing")
        return
    answer = node.ask("nvidia-smi", "nvlink", "-s", limit_s=2 * LIMIT_S)
    if not answer.ok:
        yield Finding("unknown", f"nvidia-smi nvlink -s: {_problem(answer)}")
        return
    links = smi.active_links(answer.out)
    for gpu in node.gpus:
        listed, inactive = links.get(gpu.index, (0, []))
        up = listed - len(inactive)
        which = f" (inactive: {', '.join(map(str, inactive))})" if inactive else ""
        status = "ok" if up >= expected else "fail"
        yield Finding(status, f"{up} of {expected} NVLinks active{which}", f"gpu {gpu.index}", str(up))
    yield from _link_errors(node)


def _link_errors(node: Node) -> Iterator[Finding]:
    """Yield the counters that grew since the last run. Healthy nodes have counters above zero, too."""
    answer = node.ask("nvidia-smi", "nvlink", "-e", limit_s=2 * LIMIT_S)
    if not answer.ok:
        yield Finding("unknown", f"nvidia-smi nvlink -e: {_problem(answer)}")
        return
    now, before = smi.link_errors(answer.out), node.state.get("link_errors", {})
    node.state["link_errors"] = now
    for name, count in now.items():
        if name in before and count > before[name]:
            gpu, _, kind = name.rpartition(" ")
            yield Finding("warn", f"{count - before[name]} new NVLink {kind} errors ({count} in all)", gpu)


def fabric(node: Node) -> Iterator[Finding]:
    """The fabric manager of an NVSwitch type runs, is the driver's own version, and has joined every GPU."""
    if not node.facts.nvswitch:
        known = node.facts.nvswitch is not None
        yield Finding("ok" if known else "unknown", "no NVSwitch" if known else "the instance type is not known")
        return
    yield from _fabric_service(node)
    yield from _fabric_version(node)
    for gpu in node.gpus:
        state, status = gpu.fabric_state, gpu.fabric_status
        if state is None:  # A100 has no such field
            continue
        good = state == "Completed" and status in ("Success", None)
        yield Finding("ok" if good else "fail", f"fabric {state}, {status or 'no status'}", f"gpu {gpu.index}")


def _fabric_service(node: Node) -> Iterator[Finding]:
    answer = node.ask("systemctl", "is-active", FM_UNIT)
    if answer.problem:
        yield Finding("unknown", f"systemctl: {answer.problem}")
    else:
        state = answer.out.strip() or "unknown"
        yield Finding("ok" if state == "active" else "fail", f"{FM_UNIT} is {state}", "fabric manager")


def _fabric_version(node: Node) -> Iterator[Finding]:
    answer = node.ask("nv-fabricmanager", "--version")
    match = VERSION.search(answer.out) if answer.ok else None
    if match is None or node.listing is None:
        yield Finding("unknown", f"version of nv-fabricmanager: {_problem(answer)}")
    elif match[0] == node.listing.driver:
        yield Finding("ok", f"version {match[0]}, as the driver", "fabric manager")
    else:
        yield Finding("fail", f"version {match[0]}, the driver is {node.listing.driver}", "fabric manager", match[0])


def efa(node: Node) -> Iterator[Finding]:
    """As many EFA devices as the node's queue asked for."""
    expected, found = node.facts.efa_devices, len(node.efa_devices())
    if expected is None:
        yield Finding("unknown", "the node's type or queue is not known")
    elif found < expected:
        text = f"{found} EFA devices, {node.facts.instance_type} has {expected}"
        yield Finding("fail", text, mark=str(found))
    else:
        yield Finding("ok", f"{found} EFA devices")


def fsx(node: Node) -> Iterator[Finding]:
    """The shared file system is mounted, answers, can be written to and has room."""
    place = node.settings.fsx
    options = node.mount_of(place)
    if options is None:
        yield Finding("fail", f"{place} is not mounted", mark="mount")
        return
    answer = node.ask("stat", "--file-system", "--format=%b %a", place, limit_s=FSX_LIMIT_S)
    if answer.problem == "hangs":
        yield Finding("fail", f"{place} does not answer in {FSX_LIMIT_S:.0f} s", mark="answer")
    elif not answer.ok:
        yield Finding("fail", f"{place}: {_problem(answer)}", mark="answer")
    elif "ro" in options.split(","):
        yield Finding("fail", f"{place} is mounted read-only", mark="ro")
    else:
        total, free = (int(word) for word in answer.out.split())
        used = 100.0 * (total - free) / total if total else 0.0
        yield Finding("warn" if used >= FULL_PERCENT else "ok", f"{place} is {used:.1f} % full")


def clock(node: Node) -> Iterator[Finding]:
    """A time server keeps the clock right: signed requests and MUNGE refuse a clock that is far off."""
    answer = node.ask("chronyc", "-n", "-c", "tracking")
    fields = answer.out.strip().split(",")
    if answer.ok and len(fields) > 4:
        try:
            yield _offset(abs(float(fields[4])), fields[0] != "00000000" and fields[-1] != "Not synchronised")
            return
        except ValueError:
            pass  # not a number: ask timedatectl instead
    answer = node.ask("timedatectl", "show", "--property=NTPSynchronized", "--value")
    said = answer.out.strip()
    if not answer.ok or said not in ("yes", "no"):
        yield Finding("unknown", f"neither chronyc nor timedatectl answers: {_problem(answer)}")
    else:
        yield Finding("ok" if said == "yes" else "warn", "synchronised" if said == "yes" else "not synchronised")


def _offset(seconds: float, synchronised: bool) -> Finding:
    text = f"{seconds:.6f} s from the time server's" if synchronised else "not synchronised"
    if synchronised and seconds >= CLOCK_FAIL_S:
        return Finding("fail", text)
    return Finding("ok" if synchronised and seconds < CLOCK_WARN_S else "warn", text)


def throttle(node: Node) -> Iterator[Finding]:
    """Reasons that slow a GPU down and that the user did not choose."""
    yield from _no_gpus(node)
    for gpu in node.gpus:
        text = ", ".join(gpu.throttles)
        yield Finding("warn" if text else "ok", text or "none", f"gpu {gpu.index}")


def persistence(node: Node) -> Iterator[Finding]:
    """Without persistence mode the driver starts again for each job."""
    yield from _no_gpus(node)
    for gpu in node.gpus:
        on = gpu.persistence is not False
        yield Finding("ok" if on else "warn", "on" if on else "off", f"gpu {gpu.index}")


def scratch(node: Node) -> Iterator[Finding]:
    """The instance's NVMe disks, which ParallelCluster mounts at /scratch."""
    if node.facts.nvme_gb is None:
        yield Finding("unknown", "the instance type is not known")
    elif not node.facts.nvme_gb:
        yield Finding("ok", f"{node.facts.instance_type} has no NVMe disks")
    elif node.mount_of("/scratch") is None:
        yield Finding(
            "warn", f"/scratch is not mounted, {node.facts.instance_type} has {node.facts.nvme_gb} GB of NVMe"
        )
    else:
        yield Finding("ok", "/scratch is mounted")


def leftovers(node: Node) -> Iterator[Finding]:
    """No GPU memory is in use on a node without a job."""
    if not node.gpus:
        yield from _no_gpus(node)
        return
    held = [gpu for gpu in node.gpus if (gpu.used_mib or 0) >= HELD_MIB]
    if not held:
        yield Finding("ok", f"no GPU has {HELD_MIB} MiB or more in use")
        return
    jobs = node.ask("pgrep", "--exact", "slurmstepd")
    if jobs.ok:
        yield Finding("ok", "a job runs here")
    elif jobs.problem or jobs.rc != 1:
        yield Finding("unknown", f"pgrep: {_problem(jobs)}")
    else:
        for gpu in held:
            by = ", ".join(f"process {pid} ({name})" for pid, name in gpu.processes[:3]) or "no process that it lists"
            yield Finding("warn", f"{gpu.used_mib} MiB in use without a job here, by {by}", f"gpu {gpu.index}")


def disks(node: Node) -> Iterator[Finding]:
    """The local disks and memory file systems have room."""
    for place in ("/", "/scratch", "/run", "/dev/shm"):  # noqa: S108  (looked at, never written)
        if node.mount_of(place) is None and place != "/":
            continue
        answer = node.ask("stat", "--file-system", "--format=%b %a", place)
        if not answer.ok:
            yield Finding("unknown", f"{place}: {_problem(answer)}", place)
            continue
        total, free = (int(word) for word in answer.out.split())
        used = 100.0 * (total - free) / total if total else 0.0
        full = used >= FULL_PERCENT
        text = f"{used:.1f} % full" + ("; see what is there with: du -xsh PLACE/* | sort -h" if full else "")
        yield Finding("warn" if full else "ok", text, place)


def _first_line(text: str) -> str:
    return next((line.strip()[:120] for line in text.splitlines() if line.strip()), "no output")


def _problem(answer: Answer) -> str:
    """Return why an answer cannot be used."""
    return answer.problem or f"exit {answer.rc}: {_first_line(answer.out)}"


CHECKS: tuple[Check, ...] = (
    Check("gpu-answer", "nvidia-smi answers", f"{SMI_LIMIT_S:.0f} s", "ours: 0.2 s measured on H200", 3, gpu_answer),
    Check("gpu-count", "GPUs that the driver lists", "as many as its type has", FACTS, 3, gpu_count),
    Check("gpu-lost", "GPUs fallen off the bus", "0", SMI_DOC, 1, gpu_lost),
    Check(
        "gpu-ecc",
        "uncorrectable ECC errors since the last reset; threshold and repair flags",
        "0 errors, no flag",
        MEMORY_DOC,
        1,
        gpu_ecc,
    ),
    Check(
        "gpu-rows",
        "row remapping: a failure fails; a pending remapping is reported, since new work may start",
        "no failure",
        MEMORY_DOC,
        1,
        gpu_rows,
    ),
    Check("gpu-recovery", "the recovery action that the driver asks for", "none", MEMORY_DOC, 1, gpu_recovery),
    Check("gpu-xid", "Xid and SXid in the kernel log of this boot", "no fatal one", "xids.json", 1, gpu_xid),
    Check("nvlink", "active NVLinks a GPU; growing errors are reported", "all that its type has", BOTH_WAYS, 2, nvlink),
    Check(
        "fabric",
        "fabric manager: runs, the driver's version, fabric state of each GPU",
        "active; equal; Completed, Success",
        "NVIDIA, Fabric Manager user guide; aws-parallelcluster issue 3034",
        3,
        fabric,
    ),
    Check(
        "efa",
        "EFA devices that the kernel has",
        "as many as its type has, if its queue has EFA",
        FACTS,
        3,
        efa,
    ),
    Check(
        "fsx",
        f"the shared file system: mounted, answers in {FSX_LIMIT_S:.0f} s, writable; a full one is reported",
        f"mounted rw; warns at {FULL_PERCENT:.0f} %",
        "ours",
        3,
        fsx,
        heals=True,
    ),
    Check(
        "clock",
        "offset from the time server (chrony), or whether it is synchronised",
        f"fails at {CLOCK_FAIL_S:.0f} s, warns at {CLOCK_WARN_S} s",
        "munged(8): credentials live 300 s; ours, with room",
        3,
        clock,
        heals=True,
    ),
    Check("throttle", "slowdowns by heat or power", "none", SMI_DOC, 1, throttle, only_reports=True),
    Check("persistence", "persistence mode", "on", SMI_DOC, 1, persistence, only_reports=True),
    Check(
        "scratch",
        "the NVMe disks at /scratch",
        "mounted",
        "ParallelCluster, EphemeralVolume",
        1,
        scratch,
        only_reports=True,
    ),
    Check(
        "leftovers",
        "GPU memory in use on a node without a job, with the processes that hold it",
        f"{HELD_MIB} MiB a GPU",
        "ours; sgl-project/sglang issue 23627: the next job runs out of memory",
        1,
        leftovers,
        only_reports=True,
    ),
    Check(
        "disks",
        "/, /scratch, /run and /dev/shm",
        f"warns at {FULL_PERCENT:.0f} %",
        "ours; NVIDIA/pyxis issue 161: unpacked containers fill them",
        1,
        disks,
        only_reports=True,
    ),
)
"""In the order of the report. A check with `only_reports` never fails, so it never drains the node."""
