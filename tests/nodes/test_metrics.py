"""The programs that write metrics for the node exporter: EFA's counters, the Lustre client, Slurm."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from .conftest import ROOT
from .programs import load_program

COLLECTORS = ROOT / "nodes/metrics"
LLITE_STATS = """\
snapshot_time             1795843918.123456789 secs.nsecs
read_bytes                12 samples [bytes] 4096 1048576 5242880
write_bytes               3 samples [bytes] 1 4096 8193 33558529
open                      40 samples [usecs] 2 90 400 9000
getattr                   7 samples [usec] 1 2 9
statfs                    2 samples [reqs]
"""
SINFO = """\
gpu-1|gpu|mixed|gpu:h100:8(S:0-1)|none
gpu-1|all|mixed|gpu:h100:8(S:0-1)|none
gpu-2|gpu|idle|gpu:h100:8|none
gpu-3|gpu|drained|gpu:h100:8|Xid 79: GPU | "gone"
gpu-4|gpu|down*|gpu:h100:8|Not responding
gpu-5|gpu|idle~|gpu:h100:8|none
gpu-6|gpu|idle*|gpu:8|none
cpu-1|cpu|allocated#|(null)|none
"""
SINFO_USED = """\
gpu-1                         gpu:h100:3(IDX:0,2,5)
gpu-1                         gpu:h100:3(IDX:0,2,5)
gpu-2                         gpu:h100:0
cpu-1                         gpu:0
"""
SQUEUE = "gpu|RUNNING\ngpu|PENDING\ngpu|PENDING\ncpu|COMPLETING\n"
# What Slurm 22.05 prints, as far as it is read, and lines around it.
SDIAG = """\
*******************************************************
sdiag output at Sat Nov 28 05:31:58 2026 (1795843918)
Server thread count:  3
Agent queue size:     1
DBD Agent queue size: 0

Jobs submitted: 7
Jobs failed:    2

Main schedule statistics (microseconds):
\tLast cycle:   44
\tMax cycle:    1500000
\tMean cycle:   50

Backfilling stats
\tLast cycle when: N/A
\tLast cycle: 250
\tMax cycle:  900
"""


def load(name: str) -> ModuleType:
    return load_program(COLLECTORS / f"{name}.py")


def run(name: str, *arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    command = ["/usr/bin/python3", "-B", str(COLLECTORS / f"{name}.py"), *arguments]
    environment = {"PATH": path, "LANG": "C.UTF-8"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def samples(file: Path) -> dict[str, float]:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def lint(file: Path) -> None:
    """Names, units, HELP and TYPE as Prometheus' own tool wants them."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [promtool, "check", "metrics"], input=file.read_text(), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def efa_device(root: Path, name: str, driver: str = "efa", **counters: str) -> None:
    device = root / "sys/class/infiniband" / name
    port = device / "ports/1/hw_counters"
    port.mkdir(parents=True)
    (device / "device").mkdir()
    (device / "device/uevent").write_text(f"DRIVER={driver}\nPCI_CLASS=20000\n" if driver else "PCI_CLASS=20000\n")
    (device / "ports/1/state").write_text("4: ACTIVE\n")
    for counter, value in counters.items():
        (port / counter).write_text(f"{value}\n")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A root with two EFA devices, a card of another maker and a Lustre mount."""
    efa_device(tmp_path, "rdmap0s6", tx_bytes="100", rx_pkts="5", rdma_write_wr_err="1", lifespan="12", new_one="9")
    efa_device(tmp_path, "rdmap1s6", tx_bytes="7")
    (tmp_path / "sys/class/infiniband/rdmap1s6/ports/1/state").write_text("1: DOWN\n")
    (tmp_path / "sys/class/infiniband/rdmap1s6/hw_counters").mkdir()
    (tmp_path / "sys/class/infiniband/rdmap1s6/hw_counters/create_qp_err").write_text("2\n")
    efa_device(tmp_path, "mlx5_0", driver="mlx5_core", port_xmit_wait="3")
    efa_device(tmp_path, "rdmap2s6", driver="", tx_bytes="1")  # no driver has it (any more)
    (tmp_path / "sys/class/infiniband/rdmap3s6").mkdir()
    for mount in ("abcd-ffff8881", "abcd-ffff8882"):
        (tmp_path / "proc/fs/lustre/llite" / mount).mkdir(parents=True)
        (tmp_path / "proc/fs/lustre/llite" / mount / "stats").write_text(LLITE_STATS)
    (tmp_path / "out").mkdir()
    return tmp_path


def collect(root: Path, *more: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    arguments = ("--directory", str(root / "out"), "--locks", str(root / "run"), "--root", str(root), *more)
    return run("node_metrics", *arguments, path=path)


def test_efa_counters_have_names_with_units(node: Path) -> None:
    done = collect(node)
    assert (done.returncode, done.stderr) == (0, "")
    assert samples(node / "out/slipway-efa.prom") == {
        "slipway_efa_devices": 2,
        'slipway_efa_port_active{device="rdmap0s6",port="1"}': 1,
        'slipway_efa_port_active{device="rdmap1s6",port="1"}': 0,
        'slipway_efa_tx_bytes_total{device="rdmap0s6",port="1"}': 100,
        'slipway_efa_tx_bytes_total{device="rdmap1s6",port="1"}': 7,
        'slipway_efa_rx_packets_total{device="rdmap0s6",port="1"}': 5,
        'slipway_efa_rdma_write_work_request_errors_total{device="rdmap0s6",port="1"}': 1,
        'slipway_efa_other_total{device="rdmap0s6",port="1",counter="new_one"}': 9,
        'slipway_efa_other_total{device="rdmap1s6",port="",counter="create_qp_err"}': 2,
    }
    lint(node / "out/slipway-efa.prom")
    assert [path.name for path in (node / "out").iterdir() if not path.name.endswith(".prom")] == []


def test_lustre_statistics_of_two_mounts_are_added_up(node: Path) -> None:
    collect(node)
    found = samples(node / "out/slipway-lustre.prom")
    assert found['slipway_lustre_bytes_total{file_system="abcd",direction="read"}'] == 2 * 5242880
    assert found['slipway_lustre_bytes_total{file_system="abcd",direction="write"}'] == 2 * 8193
    assert found['slipway_lustre_operations_total{file_system="abcd",operation="open"}'] == 80
    assert found['slipway_lustre_operation_seconds_total{file_system="abcd",operation="open"}'] == pytest.approx(0.0008)
    assert found['slipway_lustre_operations_total{file_system="abcd",operation="statfs"}'] == 4
    lint(node / "out/slipway-lustre.prom")
    lint(node / "out/slipway-node-collectors.prom")


def test_lctl_is_asked_where_the_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/lustre").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/lctl").write_text(f"#!/bin/sh\ncat <<'E'\nllite.abcd-ffff8881.stats=\n{LLITE_STATS}E\n")
    (tmp_path / "bin/lctl").chmod(0o755)
    collect(tmp_path, path=f"{tmp_path}/bin:{os.environ['PATH']}")
    found = samples(tmp_path / "out/slipway-lustre.prom")
    assert found['slipway_lustre_bytes_total{file_system="abcd",direction="read"}'] == 5242880


def test_tool_that_hangs_keeps_the_next_run_from_starting_another(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/lustre").mkdir(parents=True)
    for name in ("out", "bin"):
        (tmp_path / name).mkdir()
    # It outlives the reader, as one that hangs in the kernel does.
    (tmp_path / "bin/lctl").write_text(
        f"#!/bin/sh\necho $$ >>'{tmp_path}/pids'\nexec sleep 60 </dev/null >/dev/null 2>&1\n"
    )
    (tmp_path / "bin/lctl").chmod(0o755)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    try:
        assert "no answer within 2.5 s" in collect(tmp_path, "--timeout", "2.5", path=path).stderr
        assert "still hangs" in collect(tmp_path, "--timeout", "2.5", path=path).stderr
        assert len((tmp_path / "pids").read_text().split()) == 1
    finally:
        for pid in (tmp_path / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_node_without_efa_and_lustre_says_so(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert collect(tmp_path).returncode == 0
    assert samples(tmp_path / "out/slipway-efa.prom") == {"slipway_efa_devices": 0}
    assert not (tmp_path / "out/slipway-lustre.prom").exists()
    assert samples(tmp_path / "out/slipway-node-collectors.prom")['slipway_collector_up{collector="lustre"}'] == 1


def test_reader_that_hangs_is_bounded_and_its_old_metrics_go(node: Path) -> None:
    collect(node)
    assert (node / "out/slipway-lustre.prom").exists()
    stats = node / "proc/fs/lustre/llite/abcd-ffff8881/stats"
    stats.unlink()
    os.mkfifo(stats)  # nobody writes to it: opening it hangs, as a file of a dead server does
    done = collect(node, "--timeout", "2.5")  # time for the other reader
    assert done.returncode == 0
    assert "lustre: no answer within 2.5 s" in done.stderr
    assert not (node / "out/slipway-lustre.prom").exists()
    up = samples(node / "out/slipway-node-collectors.prom")
    assert up['slipway_collector_up{collector="lustre"}'] == 0
    assert up['slipway_collector_up{collector="efa"}'] == 1


def test_reader_of_an_earlier_run_that_still_hangs_gets_no_second_one(node: Path) -> None:
    (node / "run").mkdir()
    with (node / "run/metrics-lustre.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = collect(node)
    assert "lustre: the reader of an earlier run still hangs" in done.stderr
    assert not (node / "out/slipway-lustre.prom").exists()
    assert (node / "out/slipway-efa.prom").exists()


def test_counter_that_cannot_be_read_is_told(node: Path) -> None:
    (node / "sys/class/infiniband/rdmap1s6/ports/1/hw_counters/tx_bytes").write_text("broken\n")
    done = collect(node)
    assert "efa: ValueError: invalid literal" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (node / "out/slipway-efa.prom").exists()


def test_reader_that_ends_without_an_answer_is_told(tmp_path: Path) -> None:
    textfile = load("textfile")
    with pytest.raises(textfile.CollectorError, match="ended without an answer"):
        textfile.within(5, tmp_path / "lock", lambda: os._exit(3))


def test_directory_that_is_not_there_is_one_line(node: Path) -> None:
    shutil.rmtree(node / "out")
    done = collect(node)
    assert done.returncode == 1
    assert "Hint: is " in done.stderr
    assert "Traceback" not in done.stderr


def test_labels_are_escaped() -> None:
    textfile = load("textfile")
    page = textfile.Page()
    page.add(("x", "gauge", "X."), 0.5, reason='a "b"\\\nc')
    assert page.text() == '# HELP x X.\n# TYPE x gauge\nx{reason="a \\"b\\"\\\\\\nc"} 0.5\n'


# ------------------------------------------------------------------------------------------------------------- Slurm


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A directory `bin` with Slurm's commands, which print what the real ones do, and `out`."""
    for name in ("bin", "out"):
        (tmp_path / name).mkdir()
    for name, text in {
        "squeue": SQUEUE,
        "sdiag": SDIAG,
        "scontrol": "MetricsType = (null)\nSlurmctldPort = 6817\n",
    }.items():
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\ncat '{tmp_path}/{name}.txt'\n")
    (tmp_path / "sinfo.txt").write_text(SINFO)
    (tmp_path / "used.txt").write_text(SINFO_USED)
    # --format and --Format are two things, as in Slurm.
    sinfo = (
        f"#!/bin/sh\ncase \"$*\" in *--Format=*) cat '{tmp_path}/used.txt' ;; *) cat '{tmp_path}/sinfo.txt' ;; esac\n"
    )
    (tmp_path / "bin/sinfo").write_text(sinfo)
    for command in (tmp_path / "bin").iterdir():
        command.chmod(0o755)
    return tmp_path


def ask(slurm: Path, *more: str) -> subprocess.CompletedProcess[str]:
    arguments = ("--directory", str(slurm / "out"), "--targets", str(slurm / "out/slurm.json"), *more)
    return run("slurm_metrics", *arguments, path=f"{slurm}/bin:{os.environ['PATH']}")


def test_slurm_metrics(slurm: Path) -> None:
    done = ask(slurm)
    assert (done.returncode, done.stderr) == (0, "")
    found = samples(slurm / "out/slipway-slurm.prom")
    assert {key: value for key, value in found.items() if key.startswith("slipway_slurm_nodes{")} == {
        'slipway_slurm_nodes{partition="all",state="mixed"}': 1,
        'slipway_slurm_nodes{partition="cpu",state="powering_up"}': 1,
        'slipway_slurm_nodes{partition="gpu",state="down"}': 1,
        'slipway_slurm_nodes{partition="gpu",state="drained"}': 1,
        'slipway_slurm_nodes{partition="gpu",state="idle"}': 1,
        'slipway_slurm_nodes{partition="gpu",state="mixed"}': 1,
        'slipway_slurm_nodes{partition="gpu",state="not_responding"}': 1,
        'slipway_slurm_nodes{partition="gpu",state="powered_down"}': 1,
    }
    assert found['slipway_slurm_nodes_with_reason{reason="Xid 79: GPU | \\"gone\\""}'] == 1
    assert found['slipway_slurm_nodes_with_reason{reason="Not responding"}'] == 1
    assert (
        found["slipway_slurm_gpus"] == 40
    )  # gpu-1, 2, 3, 4 and 6; the node of two partitions once, the one that is off not
    assert found["slipway_slurm_gpus_allocated"] == 3
    assert found['slipway_slurm_jobs{partition="gpu",state="pending"}'] == 2
    assert found["slipway_slurm_cycle_max_seconds"] == 1.5
    assert found["slipway_slurm_backfill_cycle_seconds"] == 0.00025
    assert found["slipway_slurm_jobs_failed_total"] == 2
    assert found["slipway_slurm_agent_queue"] == 1
    lint(slurm / "out/slipway-slurm.prom")
    assert json.loads((slurm / "out/slurm.json").read_text()) == []
    assert samples(slurm / "out/slipway-slurm-collector.prom")['slipway_collector_up{collector="slurm"}'] == 1


def test_reasons_are_bounded(slurm: Path) -> None:
    lines = [f"gpu-{number}|gpu|drained|gpu:8|reason {number} {'x' * 100}\n" for number in range(30)]
    (slurm / "sinfo.txt").write_text("".join(lines))
    ask(slurm)
    found = {k: v for k, v in samples(slurm / "out/slipway-slurm.prom").items() if "with_reason" in k}
    assert len(found) == 21
    assert found['slipway_slurm_nodes_with_reason{reason="other"}'] == 10
    assert max(len(key) for key in found) < 130


def test_slurms_own_endpoint_takes_the_place_of_ours(slurm: Path) -> None:
    ask(slurm)
    (slurm / "scontrol.txt").write_text(
        "MetricsType = metrics/openmetrics\nPrivateData = none\nSlurmctldPort = 6820-6829\n"
    )
    assert ask(slurm).returncode == 0
    groups = json.loads((slurm / "out/slurm.json").read_text())
    assert {group["labels"]["__metrics_path__"] for group in groups} == {
        "/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler",
    }  # fmt: skip
    assert {target for group in groups for target in group["targets"]} == {"127.0.0.1:6820"}
    assert not (slurm / "out/slipway-slurm.prom").exists()


@pytest.mark.parametrize(
    "config",
    [
        "",
        "MetricsType = (null)\nSlurmctldPort = 6817\n",
        "MetricsType = metrics/openmetrics\nPrivateData = cloud\nSlurmctldPort = 6817\n",  # what ParallelCluster sets
        "MetricsType = metrics/openmetrics\nPrivateData = none\n",
    ],
)
def test_endpoint_that_slurm_does_not_serve_is_not_used(config: str) -> None:
    assert load("slurm_metrics").endpoint(config) == ""


@pytest.mark.parametrize(
    ("printed", "word"),
    [
        ("idle", "idle"), ("idle~", "powered_down"), ("drained~", "powered_down"), ("mixed#", "powering_up"),
        ("idle%", "powering_down"), ("idle!", "powering_down"), ("down*", "down"), ("draining*", "draining"),
        ("idle*", "not_responding"), ("reserved$", "reserved"), ("allocated@", "allocated"), ("planned-", "planned"),
        ("ALLOCATED+", "allocated"), ("", ""),
    ],
)  # fmt: skip
def test_states(printed: str, word: str) -> None:
    assert load("slurm_metrics").state(printed) == word


@pytest.mark.parametrize(
    ("gres", "number"),
    [
        ("(null)", 0), ("", 0), ("gpu:8", 8), ("gpu:h100:8", 8), ("gpu:h100:8(S:0-1)", 8), ("gpu:h100:3(IDX:0,2,5)", 3),
        ("gpu:a100:4,gpu:h100:2(IDX:0-1)", 6), ("nic:4,gpu:1", 1), ("mygpu:4", 0),
    ],
)  # fmt: skip
def test_gpus(gres: str, number: int) -> None:
    assert load("slurm_metrics").count_gpus(gres) == number


def test_slurm_that_hangs_is_bounded_and_told(slurm: Path) -> None:
    ask(slurm)
    (slurm / "bin/squeue").write_text("#!/bin/sh\nexec sleep 60\n")
    done = ask(slurm, "--timeout", "2.5")
    assert done.returncode == 0
    assert "squeue" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (slurm / "out/slipway-slurm.prom").exists()
    assert samples(slurm / "out/slipway-slurm-collector.prom")['slipway_collector_up{collector="slurm"}'] == 0


def test_slurm_that_is_not_there_leaves_the_targets_alone(slurm: Path) -> None:
    (slurm / "out/slurm.json").write_text("[1]")
    (slurm / "bin/scontrol").write_text("#!/bin/sh\nexit 1\n")
    assert ask(slurm).returncode == 0
    assert (slurm / "out/slurm.json").read_text() == "[1]"


def test_slurm_metrics_directory_that_is_not_there_is_one_line(slurm: Path) -> None:
    shutil.rmtree(slurm / "out")
    done = ask(slurm)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
