"""The whole road on this machine: settings, cdk deploy, hosts, Slurm, all_reduce, verdict; and the faults on purpose.

Each test is one rehearsal with the real tools, started as a user starts it. Nodes and GPUs are as few as the behaviour
needs: each compute node costs a rehearsal seven seconds of CPU, and each rank of a collective half a second.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SETTINGS = "clusters/rehearsal.yaml"
SMALL = "tests/rehearsal/small.yaml"
SCENARIO = "tests/rehearsal/scenario/test_scenario/hosts.toml"
# What a user types on the head node; the words are complete only in the output, not in the echo of the command.
MEASURE = (
    "acceptance run --network --json 2>/dev/null | python3 -c 'import json, sys; report = json.load(sys.stdin); "
    'rows = report["tests"][0]["rows"]; print("meas" "ured:", report["verdict"], '
    """max(rows, key=lambda row: row["size"])["measured_busbw_gb_per_s"], "GB/s")'"""
)
SITE_PARTS = REPOSITORY / "tests/stacks/site-parts.yaml"
END_S = 300  # from the end of the shell to that of the rehearsal
LIMIT_S = 600  # of a rehearsal: two at once take four minutes next to the other tests on two busy cores

pytestmark = [pytest.mark.road, pytest.mark.slow, pytest.mark.timeout(900)]
hosts = pytest.mark.skipif(os.geteuid() != 0, reason="local hosts need root")


def program() -> str:
    """`slipway` of the deploy environment if it exists, as users have it."""
    own = REPOSITORY / ".venv/bin/slipway"
    return str(own if own.exists() else Path(sys.executable).parent / "slipway")


def start(*arguments: str, output: Path) -> subprocess.Popen[str]:
    """A rehearsal in the background."""
    command = [program(), "rehearse", *arguments]
    return subprocess.Popen(
        [*command, "--output", str(output)], cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str], limit_s: float = LIMIT_S) -> str:
    """Its whole output; the rehearsal is ended when it takes longer than a user would bear."""
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=60)
        pytest.fail(f"not done after {limit_s} s:\n{output[-3000:]}")
    assert "Traceback" not in output
    return output


def of_other_tests(pid: int) -> bool:
    """Whether a process descends from another process of the test suite, which boots hosts at the same time.

    Where the suite runs in several processes, they are children of one: what descends from that, and not from this
    process, is another one's.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return False
    while pid not in (1, os.getpid()):
        if pid == os.getppid():
            return True
        try:
            status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        except OSError:
            return True  # it has ended meanwhile: nothing is left of it
        pid = int(status.split("PPid:", 1)[1].split()[0])
    return False


def traces() -> dict[str, set[str]]:
    """What a rehearsal could leave on the machine: mounts, network namespaces, control groups, files in /tmp, processes."""
    mounts = {line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()}
    # os.walk passes over groups that go while it looks.
    below = os.walk("/sys/fs/cgroup")
    groups = {f"{at}/{name}" for at, names, _ in below for name in names if name.startswith("slipway-rehearsal-")}
    processes = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            group = (folder / "cgroup").read_text(encoding="utf-8")
        except OSError:
            continue
        wanted = "-m rehearsal" in command or "slipway-rehearsal-" in group
        if wanted and not of_other_tests(int(folder.name)):
            processes.add(f"{folder.name} {command[:80]}")
    return {
        "mounts": {mount for mount in mounts if "slipway" in mount},
        "netns": {path.name for path in Path("/run/netns").glob("*")},
        "groups": groups,
        "tmp": {path.name for path in Path("/tmp").glob("slipway-*")},
        "processes": processes,
    }


def only_report(output: Path) -> dict[str, Any]:
    """The one report.json below a folder of rehearsals."""
    (file,) = output.glob("*/acceptance/*/report.json")
    report: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return report


def largest_busbw(report: dict[str, Any]) -> float:
    """Bus bandwidth in GB/s of the largest size of the test over all nodes."""
    rows = report["tests"][0]["rows"]
    return float(max(rows, key=lambda row: row["size"])["measured_busbw_gb_per_s"])


#: Granted by our stacks and not used in a rehearsal: a part of the line in permissions.txt, and the reason.
NOT_USED = {
    "GrafanaRole": "no Grafana server queries the metrics here",
    "NameGuardFunctionServiceRoleDefaultPolicy: cloudformation:DescribeStackResource ": (
        "the name guard reads its own stack's resource only if a stack with the cluster's name exists before the deployment"
    ),
    "Policy: logs:": "no CloudWatch agent runs here",
    "Provider": "CDK's framework: its own functions and state machine are a stand-in here",
    "StartFunction": "it asks for the stack's state only when an update is rolled back",
    "ec2messages:": "agents before 3.3.40 take commands through these",
    "s3:AbortMultipartUpload": "only an upload of a large report that fails is aborted",
}
#: Used only if the timer of `30-topology` runs before the verdict, 20 s after the head node's bootstrap or later.
USED_LATE = "ec2:DescribeInstanceTopology"


def granted_without_use(output: Path) -> list[str]:
    """The lines of permissions.txt that have no reason in NOT_USED."""
    (file,) = output.glob("*/permissions.txt")
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("granted and not used")]
    assert all(any(part in line for line in lines) for part in NOT_USED), "a reason for what is used by now"
    return [line for line in lines if not any(part in line for part in (*NOT_USED, USED_LATE))]


@hosts
@pytest.mark.hosts
def test_a_shell_in_a_good_one_next_to_a_broken_one(tmp_path: Path) -> None:
    """Two rehearsals at once do not meet: one has a throttled host and ends with its name, the other one is good.

    The good one runs a CloudAI scenario; in it a user under umask 077 runs a job in a shell, and measures the network,
    which is accepted too. `exit` ends it with the verdict of the scenario. The other one is of a site with scripts, mounts and parameters of its own, which reach the hosts; its cluster is kept,
    and nothing is left of it when its keeper is killed.
    """
    before = traces()
    site = _site(tmp_path)
    slow = start(str(site), "--break", "slow-node=gpu-3", "--keep", "--hours", "0.3", output=tmp_path / "slow")
    good = tmp_path / "good.yaml"
    good.write_text((REPOSITORY / SETTINGS).read_text(encoding="utf-8").replace("count: 4", "count: 2"), "utf-8")
    try:
        good_busbw = _use_a_shell(good, tmp_path / "good")
    finally:
        slow_output = finish(slow)
        _use_and_kill_the_kept_cluster(slow_output, str(site))
    assert slow.returncode == 1, slow_output[-3000:]
    assert slow_output.splitlines()[-1].startswith("[RESULT] FAILURE:")
    assert "train-st-gpu-3" in slow_output.splitlines()[-1]
    _the_sites_parts_are_there(slow_output, tmp_path / "slow")

    assert granted_without_use(tmp_path / "good") == []
    good_report, slow_report = only_report(tmp_path / "good"), only_report(tmp_path / "slow")
    # The throttled link is 6.7 times slower; half of the good figure leaves room for a busy machine.
    assert largest_busbw(slow_report) < good_busbw / 2
    assert [(test["id"], test["verdict"]) for test in good_report["scenario"]["tests"]] == [
        ("names", "pass"),
        ("gpus", "pass"),
    ]
    assert [step["kind"] for step in good_report["scenario"]["jobs"][0]["steps"]] == ["pre_test", "test"]
    (gpus,) = (tmp_path / "good").glob("*/acceptance/*/gpus/0/stdout.txt")
    assert gpus.read_text(encoding="utf-8") == "16\n"
    (page,) = (tmp_path / "good").glob("*/acceptance/*/report.html")
    assert "train-st-gpu-1" in page.read_text(encoding="utf-8")
    assert list((tmp_path / "good").glob("*/acceptance/*/junit.xml"))
    _nothing_is_left(before)


def _use_and_kill_the_kept_cluster(output: str, settings: str) -> None:
    """Use the cluster as a user does: jobs, exit codes, wrong nodes, the name a second time. Then kill its keeper."""
    (name,) = re.findall(r"^(\S+) is kept until .* slipway rehearse --end \1$", output, re.MULTILINE)
    kept = json.loads(Path(f"/run/slipway/kept/{name}.json").read_text(encoding="utf-8"))
    try:
        job = _slipway("shell", "--cluster", name, "head", "--", "srun", "--nodes=2", "hostname")
        assert sorted(job.stdout.split()) == ["train-st-gpu-1", "train-st-gpu-2"], job.stderr
        node = _slipway("shell", "--cluster", name, "gpu-2", "--", "sh", "-c", "id -un; hostname; exit 7")
        assert (node.returncode, node.stdout) == (7, "ubuntu\ntrain-st-gpu-2\n")
        scratch = _slipway("shell", "--cluster", name, "gpu-2", "--", "findmnt", "--noheadings", "/scratch")
        assert scratch.stdout.startswith("/scratch"), scratch.stderr
        wrong = _slipway("shell", "--cluster", name, "gpu-9", "--", "true")
        assert (wrong.returncode, wrong.stderr.split(".")[0]) == (2, f"gpu-9: no such node runs in {name}")
        _the_head_node_has_ec2s_topology(name)
        again = _slipway("rehearse", settings, "--keep")
        assert again.returncode == 2
        assert f"a cluster {name} is kept until" in again.stderr
    finally:
        os.kill(kept["keeper"], signal.SIGKILL)


def _the_head_node_has_ec2s_topology(name: str) -> None:
    """Its timer may not have run yet; the three nodes are below the same network nodes (rehearsal/cloud/topology.py)."""
    file = "/var/lib/slipway/topology.json"
    script = f"systemctl start slipway-topology && cat {file} && sinfo --noheader --format='%n %o'"
    done = _slipway("shell", "--cluster", name, "head", "--", "sudo", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    answer, *listing = done.stdout.splitlines()
    nodes = json.loads(answer)["nodes"]
    assert {f"{node} {entry['address']}" for node, entry in nodes.items()} == set(listing)
    assert len(nodes) == 3
    (places,) = {tuple(entry["network_nodes"]) for entry in nodes.values()}
    assert [place[:3] for place in places] == ["nn-"] * 3


def _slipway(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program(), *arguments], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
    )


def _use_a_shell(settings: Path, output: Path) -> float:
    """Rehearse a scenario on a terminal, use the shell on the head node and leave it; return the network's GB/s."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.umask(0o077)
        os.chdir(REPOSITORY)
        options = ["--test-scenario", SCENARIO, "--shell", "--output", str(output)]
        os.execv(program(), [program(), "rehearse", str(settings), *options])  # noqa: S606
    try:
        _read(terminal, "ubuntu@head", LIMIT_S)
        # The word is complete only in the output, not in the echo of the command.
        # The shell of the last command says it: bash itself would lose a Ctrl-C that comes while it starts a program.
        os.write(terminal, b"srun --nodes=2 hostname | sort; sh -c \"echo jobs' 'ended; exec sleep 100\"\n")
        assert "train-st-gpu-2" in _read(terminal, "jobs ended", 180)
        os.write(terminal, b"\x03")  # Ctrl-C ends the command, not the rehearsal
        os.write(terminal, f"{MEASURE}\n".encode())
        measured = re.search(r"measured: accepted ([0-9.]+)", _read(terminal, " GB/s\r", 120))
        assert measured
        os.write(terminal, b"id --user --name; exit\n")
        rest = _read_to_the_end(terminal)
        assert "Traceback" not in rest
        assert rest.splitlines()[-1] == "[RESULT] SUCCESS"
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    except BaseException:
        _end(pid, terminal)
        raise
    return float(measured[1])


@hosts
@pytest.mark.hosts
def test_a_broken_bootstrap_names_step_and_node(tmp_path: Path) -> None:
    """Of the head node; bootstrap=compute is in test_dynamic_nodes.py."""
    before = traces()
    process = start(SMALL, "--break", "bootstrap=head", output=tmp_path)
    output = finish(process)
    assert process.returncode == 1, output[-3000:]
    last = output.splitlines()[-1]
    assert last.startswith("[RESULT] FAILURE:")
    for word in ("head: step headnode/12-user-scripts", "cannot write /fsx/scripts/", "is it read-only or full?"):
        assert word in last
    _nothing_is_left(before)


@hosts
@pytest.mark.hosts
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL], ids=["closed-terminal", "kill-9"])
def test_nothing_is_left_when_it_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    before = traces()
    process = start(SMALL, output=tmp_path)
    _wait_for_hosts(process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=LIMIT_S)
    if number != signal.SIGKILL:
        assert process.returncode == 130, output[-2000:]
        assert output.splitlines()[-1] == "[RESULT] FAILURE: interrupted"
        assert "(exit 137)" not in output
    _nothing_is_left(before)


@hosts
@pytest.mark.hosts
def test_a_second_ctrl_c_ends_it_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    before = traces()
    process = start(SMALL, output=tmp_path)
    _wait_for_hosts(process)
    process.send_signal(signal.SIGINT)
    time.sleep(1)  # two signals at the same moment are one
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output[-2000:]
    assert output.splitlines()[-1] == "[RESULT] FAILURE: interrupted"
    _nothing_is_left(before)


def _read(terminal: int, word: str, limit_s: float) -> str:
    """What comes from a terminal, up to a word or the end."""
    text, deadline = "", time.monotonic() + limit_s
    while word not in text and time.monotonic() < deadline:
        part = _part(terminal)
        if part is None:
            break
        text += part
    assert word in text, text[-3000:]
    return text


def _part(terminal: int) -> str | None:
    """What comes from a terminal within a second; None at its end."""
    if not select.select([terminal], [], [], 1.0)[0]:
        return ""
    try:
        return os.read(terminal, 65536).decode(errors="replace") or None
    except OSError:
        return None


def _read_to_the_end(terminal: int) -> str:
    """Read the rest, until no process has it open. Who reads only a part lets the rehearsal wait with the next one."""
    text, deadline = "", time.monotonic() + END_S
    while (part := _part(terminal)) is not None:
        text += part
        if time.monotonic() > deadline:
            processes = subprocess.run(["ps", "-eo", "pid,ppid,stat,wchan:30,tty,args"], capture_output=True, text=True)
            pytest.fail(f"the terminal is still open {END_S} s after `exit`:\n{text[-3000:]}\n{processes.stdout}")
    return text


def _end(pid: int, terminal: int) -> None:
    """End the rehearsal of a failed test as a closed terminal does, and wait until it has removed what it made."""
    os.close(terminal)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and os.waitpid(pid, os.WNOHANG) == (0, 0):
        time.sleep(0.5)


def _wait_for_hosts(process: subprocess.Popen[str]) -> None:
    """Until the first local host has booted."""
    deadline = time.monotonic() + LIMIT_S
    assert process.stdout is not None
    for line in process.stdout:
        if "Slurm starts" in line:
            return
        if time.monotonic() > deadline:
            break
    pytest.fail("no local host came up")


def _nothing_is_left(before: dict[str, set[str]]) -> None:
    """Wait until nothing is new; what was there before may have gone: others use the machine too."""
    deadline = time.monotonic() + 60
    while left := {kind: found - before[kind] for kind, found in traces().items() if found - before[kind]}:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


HEAD_SCRIPT = """\
#!/bin/bash
[[ -d /opt/slipway/current ]] && echo "site: ran after Slipway, with $*"
echo "$cfn_postinstall" >"/shared/$(hostname)"
echo "site: $(scontrol show config | grep -w SlurmdTimeout | tr -s ' ')"
"""
COMPUTE_SCRIPT = """\
#!/bin/bash
[[ -d /opt/slipway/current ]] && echo "site: ran after Slipway, with $# arguments"
echo "site: the head node left $(cat /shared/head)"
echo "site: $(scontrol show partition train | grep -o 'GraceTime=[0-9]*')"
"""
FAILING_SCRIPT = "#!/bin/bash\necho 'no licence server' >&2\nexit 3\n"


def _script(folder: Path, key: str, text: str) -> None:
    """Put a script of the site next to its settings."""
    file = folder / "s3/site-scripts" / key
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _site(folder: Path) -> Path:
    """A settings file that names all parts of a site, with the site's scripts next to it."""
    _script(folder, "harden.sh", HEAD_SCRIPT)
    _script(folder, "compute/limits.sh", COMPUTE_SCRIPT)
    settings = SITE_PARTS.read_text(encoding="utf-8").replace("count: 2", "count: 3")
    # One GPU: the link that is throttled is the node's. EC2 has a topology for this type, and none for p5.4xlarge.
    settings = settings.replace("p5.48xlarge", "g6e.8xlarge")
    settings = settings.replace("{SlurmdTimeout: 600}", "{SlurmdTimeout: 600, JobAcctGatherFrequency: 20}")
    file = folder / "site.yaml"
    file.write_text(f"{settings}acceptance: {{scenario: all-reduce}}\n", encoding="utf-8")
    return file


def _the_sites_parts_are_there(output: str, folder: Path) -> None:
    assert "JobAcctGatherFrequency=20 is not tried: no slurmdbd runs behind the local hosts" in output
    said = {file.stem: file.read_text(encoding="utf-8") for file in folder.glob("*/hosts/*.log")}
    nodes = [f"train-st-gpu-{number}" for number in (1, 2, 3)]
    assert set(said) == {"head", *nodes}
    assert "site: ran after Slipway, with --level 2\n" in said["head"]
    assert "site: SlurmdTimeout = 600 sec\n" in said["head"]
    for node in nodes:
        assert "site: ran after Slipway, with 0 arguments\n" in said[node]
        assert 'site: the head node left "s3://site-scripts/harden.sh"\n' in said[node]
        assert "site: GraceTime=60\n" in said[node]


@hosts
@pytest.mark.hosts
def test_a_sites_script_that_fails_and_a_step_that_hangs_fail_their_nodes_by_name(tmp_path: Path) -> None:
    """The script fails the first node; the last one waits for a file system until its step is ended."""
    before = traces()
    _script(tmp_path, "compute/limits.sh", FAILING_SCRIPT)
    settings = (REPOSITORY / SMALL).read_text(encoding="utf-8").replace("count: 1", "count: 2")
    file = tmp_path / "small.yaml"
    script = '{url: "s3://site-scripts/compute/limits.sh"}'
    file.write_text(settings.replace("efa: true}", f"efa: true, scripts: [{script}]}}"), encoding="utf-8")
    process = start(str(file), "--break", "hang", output=tmp_path / "out")
    output = finish(process)
    assert process.returncode == 1, output[-3000:]
    last = output.splitlines()[-1]
    assert last.startswith("[RESULT] FAILURE: small-cluster/Cluster: train-st-gpu-1")
    assert "s3://site-scripts/compute/limits.sh: a custom action failed (exit 3); it said: no licence server" in last
    assert re.search("host +train-st-gpu-2: train-st-gpu-2: step compute/.* exceeded", output), output[-3000:]
    _nothing_is_left(before)
