"""load-bundle.sh and what an update does to a node: a new release, one that fails, one that is taken back, and Slurm."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Iterator

import pytest

from .conftest import LOAD, ROOT, pack
from .host import Host

pytestmark = pytest.mark.hosts

PARAMETER = "/slipway/ml/bundle"
# In front of the machine's `aws`: serves one parameter out of a file, as often as .refused says only after a refusal.
AWS = b"""#!/bin/bash
case "$*" in
  '--region us-east-1 --output text ssm get-parameter --name '*' --query Parameter.Value')
    if [ -s /srv/ssm/.refused ]; then
      sed -i '1d' /srv/ssm/.refused
      echo 'An error occurred (AccessDeniedException) when calling the GetParameter operation' >&2
      exit 254
    fi
    exec cat "/srv/ssm/$8" ;;
  *) exec /usr/local/bin/aws.objects "$@" ;;
esac
"""
STEP = """\
#!/bin/bash
# A step of the tests.
# needs: nothing
# permission: root
# how often: as wanted
# on failure: stop
# timeout: 60 s
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../nodes/lib/all.sh"
"""
FOLDERS = ("nodes/lib", "nodes/metrics", "nodes/status")  # node_status.py reads what the metrics count
PARTS = (*(str(path.relative_to(ROOT)) for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.*"))),)
PARTS += ("nodes/use-bundle.sh", "nodes/load-bundle.sh", "headnode/setup-headnode.sh")
PARTS += ("compute/setup-compute.sh", "nodes/steps/90-report.sh")
PARTS += ("nodes/update/running-nodes.sh", "nodes/update/this-node.sh", "headnode/steps/85-update-nodes.sh")


def bundle(version: str, body: str = "") -> bytes:
    """A release of the real scripts with one step of its own."""
    step = (STEP + textwrap.dedent(body) + f"echo {version} >/srv/applied\n").encode()
    files = {part: ((ROOT / part).read_bytes(), 0o755) for part in PARTS}
    files |= {f"{kind}/steps/10-own.sh": (step, 0o755) for kind in ("headnode", "compute")}
    files["node.env"] = (f"CLUSTER_NAME=ml\nREGION=us-east-1\nVERSION={version}\n".encode(), 0o644)
    return pack(files)


BUNDLES = {
    "one": bundle("one"),
    "two": bundle("two"),
    "bad": bundle("bad", 'echo half >/srv/applied; log::die "it cannot be" "mend it"\n'),
    "needy": bundle("needy", '[ -e /srv/there ] || log::die "it is not there" "put it there"\n'),
    "slow": bundle("slow", "touch /srv/started; [ ! -e /srv/wait ] || sleep 30\n"),
}
SHA = {name: hashlib.sha256(content).hexdigest() for name, content in BUNDLES.items()}


@pytest.fixture(scope="module")
def machine(host: Host) -> Host:
    host.run("mv /usr/local/bin/aws /usr/local/bin/aws.objects; mkdir -p /srv/ssm/slipway/ml")
    host.put("/usr/local/bin/aws", AWS, 0o755)
    host.put("/srv/load-bundle.sh", (ROOT / "nodes/load-bundle.sh").read_bytes(), 0o755)
    for name, content in BUNDLES.items():
        host.put(f"/srv/s3/assets/{name}.gz", content)
    return host


@pytest.fixture
def node(machine: Host) -> Iterator[Host]:
    """A node without any release."""
    yield machine
    machine.run("rm -rf /opt/slipway /etc/slipway /var/lib/slipway /srv/applied /srv/started /srv/wait /fsx/logs")


def name(host: Host, which: str, *, sha256: str = "", values: str = "RESULTS_BUCKET=results-1") -> None:
    """Let the parameter name a bundle."""
    text = f"BUNDLE_URL=s3://assets/{which}.gz\nBUNDLE_SHA256={sha256 or SHA[which]}\n{values}\n"
    host.put(f"/srv/ssm{PARAMETER}", text.encode())


def load(host: Host, *more: str, kind: str = "head", check: bool = True) -> tuple[int, str]:
    """Run the bootstrap action; the pauses between its tries are not what these tests are about."""
    command = " ".join([LOAD.format(kind=kind), *more])
    done = host.run(f"sleep() {{ :; }}; export -f sleep; {command}", check=check)
    return done.returncode, done.stdout


def in_use(host: Host) -> tuple[str, str]:
    """What was applied last, and which release `current` and node.env are of."""
    applied = host.run("cat /srv/applied").stdout.strip()
    version = host.run("sed -n 's/^VERSION=//p' /opt/slipway/current/node.env /etc/slipway/node.env").stdout.split()
    assert len(set(version)) == 1
    return applied, version[0]


def status(host: Host) -> dict[str, object]:
    found: dict[str, object] = json.loads(host.run("/opt/slipway/current/nodes/status/node_status.py").stdout)
    return found


def files(host: Host) -> str:
    """Path, mode, time and sha256 of every file that a run leaves, without the records of the steps."""
    found = "find /opt/slipway /etc/slipway /var/lib/slipway -path '*/steps' -prune -o -type f"
    return host.run(
        f"{found} -printf '%p %m %T@\\n'; {found} -exec sha256sum {{}} +; readlink /opt/slipway/current"
    ).stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("", "0 arguments"),
        ("head us-east-1", "2 arguments"),
        (f"login us-east-1 {PARAMETER}", "kind 'login'"),
        (f"head 'us east' {PARAMETER}", "region 'us east'"),
        ("head us-east-1 slipway/ml", "parameter 'slipway/ml'"),
        ("head us-east-1 '/slipway/$(id)/bundle'", "is not /PATH/NAME"),
    ],
)
def test_bad_arguments(node: Host, arguments: str, named: str) -> None:
    done = node.run(f"/srv/load-bundle.sh {arguments}", check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("slipway: FAULT host=head step=load-bundle exit=2 ")
    assert named in done.stdout
    assert node.run("test -e /opt/slipway", check=False).returncode == 1


@pytest.mark.parametrize(("kind", "setup"), [("head", "headnode"), ("compute", "compute")])
def test_a_node_takes_what_the_parameter_names(node: Host, kind: str, setup: str) -> None:
    name(node, "one", values='RESULTS_BUCKET=b\nNASTY=$(touch /srv/canary) "x"')
    _, said = load(node, kind=kind)
    assert f"step {setup}/10-own ok" in said
    assert in_use(node) == ("one", "one")
    env = node.run("cat /etc/slipway/node.env").stdout
    assert 'RESULTS_BUCKET=b\nNASTY=$(touch /srv/canary) "x"\n' in env
    assert node.run("test -e /srv/canary", check=False).returncode == 1
    assert node.run("ls -A /opt/slipway").stdout.split() == ["current", "releases"]
    # Once more: nothing is fetched, nothing changes.
    before = files(node)
    node.run("mv /srv/s3/assets/one.gz /srv/gone.gz")
    load(node, kind=kind)
    node.run("mv /srv/gone.gz /srv/s3/assets/one.gz")
    assert files(node) == before


def test_a_refusal_while_a_deployment_is_under_way_is_waited_for(node: Host) -> None:
    name(node, "one")
    node.put("/srv/ssm/.refused", b"1\n2\n")
    _, said = load(node)
    assert said.count("AccessDeniedException") == 2
    assert "try 2 of 6 failed" in said
    assert in_use(node) == ("one", "one")


@pytest.mark.parametrize(
    ("which", "sha256", "said"),
    [
        ("one", SHA["two"], f"s3://assets/one.gz has sha256 {SHA['one']}, expected {SHA['two']}"),
        ("gone", "c" * 64, "Key does not exist"),
        ("one", "short", "has no BUNDLE_URL=s3://... or no BUNDLE_SHA256=..."),
        ("one;reboot", SHA["one"], "has no BUNDLE_URL=s3://... or no BUNDLE_SHA256=..."),
    ],
)
def test_what_cannot_be_had_changes_nothing_and_is_told(node: Host, which: str, sha256: str, said: str) -> None:
    name(node, "one")
    load(node)
    name(node, which, sha256=sha256)
    code, out = load(node, check=False)
    assert code == 1
    assert said in out
    assert "step=load-bundle exit=1 cannot read parameter /slipway/ml/bundle or fetch its bundle, after 6 tries" in out
    assert in_use(node) == ("one", "one")
    assert node.run("ls -A /opt/slipway").stdout.split() == ["current", "releases"]


def test_an_archive_that_is_none_is_told(node: Host) -> None:
    node.put("/srv/s3/assets/torn.gz", BUNDLES["one"][:2000])
    name(node, "torn", sha256=hashlib.sha256(BUNDLES["one"][:2000]).hexdigest())
    code, out = load(node, check=False)
    assert (code, "gzip" in out) == (1, True)
    assert node.run("ls -A /opt/slipway /opt/slipway/releases").stdout.split() == [
        "/opt/slipway:",
        "releases",
        "/opt/slipway/releases:",
    ]


def test_an_update_takes_the_new_release(node: Host) -> None:
    name(node, "one")
    load(node)
    name(node, "two")
    load(node, SHA["two"], "RESULTS_BUCKET=results-1")
    assert in_use(node) == ("two", "two")
    assert node.run(f"/opt/slipway/current/nodes/status/node_status.py --expect {SHA['two']}").returncode == 0


def test_the_release_before_is_kept_and_older_ones_are_not(node: Host) -> None:
    for which in ("one", "two", "slow", "slow"):
        name(node, which)
        load(node, SHA[which])
    kept = node.run("ls /opt/slipway/releases").stdout.split()
    assert kept == sorted([SHA["two"][:12], SHA["slow"][:12]])


def test_a_release_that_fails_leaves_the_one_before_in_use_and_says_so(node: Host) -> None:
    name(node, "one")
    load(node)
    name(node, "bad", values="RESULTS_BUCKET=other")
    code, out = load(node, SHA["bad"])
    assert code == 0  # the update of the cluster itself goes on
    assert "step=headnode/10-own exit=1" in out
    assert f"release {SHA['bad'][:12]} failed: back to {SHA['one'][:12]}" in out
    assert out.endswith(
        f"release {SHA['one'][:12]} is in use again, its set-up ended well; what failed is not in use\n"
    )
    assert in_use(node) == ("one", "one")
    assert "RESULTS_BUCKET=results-1" in node.run("cat /etc/slipway/node.env").stdout
    told = node.run(f"/opt/slipway/current/nodes/status/node_status.py --expect {SHA['bad']}", check=False)
    assert told.returncode == 1
    assert told.stdout == (
        f"[RESULT] FAILURE: the head node uses release {SHA['one'][:12]}, not {SHA['bad'][:12]}: "
        "step headnode/10-own failed: mend it\n"
    )
    # By hand or on a compute node the same is a failure.
    assert load(node, check=False)[0] == 1
    # A good one makes it forgotten.
    name(node, "two")
    load(node, SHA["two"])
    release = status(node)["release"]
    assert release == {"in_use": SHA["two"][:12], "good": SHA["two"][:12], "failed": None}


def test_a_value_that_fails_is_taken_back_as_well(node: Host) -> None:
    picky = bundle("picky", 'env::load "$SLIPWAY_NODE_ENV"; [ "$(env::get RESULTS_BUCKET)" = good ]\n')
    digest = hashlib.sha256(picky).hexdigest()
    node.put("/srv/s3/assets/picky.gz", picky)
    name(node, "picky", sha256=digest, values="RESULTS_BUCKET=good")
    load(node)
    name(node, "picky", sha256=digest, values="RESULTS_BUCKET=bad")
    assert load(node, digest)[0] == 0
    assert "RESULTS_BUCKET=good" in node.run("cat /etc/slipway/node.env").stdout


def test_nothing_good_is_left(node: Host) -> None:
    name(node, "two")
    load(node)
    name(node, "needy")
    node.run("touch /srv/there")
    load(node)
    node.run("rm /srv/there")
    # The same release, the same values: there is nothing to go back to.
    code, out = load(node, SHA["needy"], check=False)
    assert (code, "is in use again" in out) == (1, False)
    # Another one: the release before is tried, and fails too.
    name(node, "bad")
    code, out = load(node, SHA["bad"], check=False)
    assert code == 1
    assert f"release {SHA['needy'][:12]} is in use again, but its set-up ended with 1 too" in out
    # A release that was deleted cannot be used again.
    node.run(f"rm -r /opt/slipway/releases/{SHA['needy'][:12]}")
    code, out = load(node, SHA["bad"], check=False)
    assert (code, "is in use again" in out) == (1, False)


def test_the_first_release_that_fails_is_a_failure(node: Host) -> None:
    name(node, "bad")
    code, out = load(node, check=False)
    assert code == 1
    assert "is in use again" not in out
    release = status(node)["release"]
    assert isinstance(release, dict)
    assert release["failed"]["step"]["hint"] == "mend it"


def test_an_update_that_is_taken_back_returns_to_its_release(node: Host) -> None:
    name(node, "one")
    load(node)
    name(node, "two")
    load(node, SHA["two"])
    # CloudFormation goes back: the configuration is the old one again, the parameter not yet.
    _, out = load(node, SHA["one"])
    assert f"is of release {SHA['one'][:12]}, the parameter names {SHA['two'][:12]}: using the former" in out
    assert in_use(node) == ("one", "one")
    # One that was never here is not waited for.
    load(node, "f" * 64)
    assert in_use(node) == ("two", "two")


def test_killed_in_an_update_and_run_again(node: Host) -> None:
    name(node, "one")
    load(node)
    name(node, "slow")
    node.run("touch /srv/wait")
    node.run(
        f"setsid {LOAD.format(kind='head')} {SHA['slow']} >/dev/null 2>&1 & pid=$!; "
        "until [ -e /srv/started ]; do sleep 0.05; done; kill -9 -- -$pid"
    )
    assert node.run("cat /srv/applied").stdout == "one\n"
    node.run("rm /srv/wait")
    load(node, SHA["slow"])
    assert in_use(node) == ("slow", "slow")


def test_two_at_once_end_as_one(node: Host) -> None:
    name(node, "one")
    both = f"{LOAD.format(kind='head')} & {LOAD.format(kind='head')} & wait -n && wait"
    out = node.run(both).stdout
    assert out.count("step headnode/10-own ok") == 2
    assert in_use(node) == ("one", "one")


# ---- compute nodes, through a real Slurm whose only node is this machine ----

SLURM_CONF = """\
ClusterName=ml
SlurmctldHost=head(10.99.0.1)
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName=gpu-1 NodeHostname=head NodeAddr=10.99.0.1 CPUs=2
PartitionName=train Nodes=gpu-1 Default=YES OverSubscribe=EXCLUSIVE State=UP
"""
START = """
set -e
ip address add 10.99.0.1/32 dev lo  # Slurm finds no name where there is no address but 127.0.0.1
echo '10.99.0.1 head gpu-1' >>/etc/hosts
mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd /run/munge
chown munge:munge /run/munge /etc/munge/munge.key
{ runuser -u munge -- munged --force && slurmctld && slurmd -N gpu-1; } >/srv/slurm.log 2>&1 </dev/null
for try in $(seq 600); do [ "$(sinfo -h -o %T)" != idle ] || exit 0; sleep 0.1; done
sinfo; tail /srv/slurm.log /var/log/slurmctld.log /var/log/slurmd.log; exit 1
"""


@pytest.fixture(scope="module")
def slurm(machine: Host) -> Host:
    machine.put("/etc/slurm/slurm.conf", SLURM_CONF.encode())
    machine.run(START)
    return machine


UPDATE = "/opt/slipway/current/nodes/update/running-nodes.sh"
WAIT = "for try in $(seq 600); do {0} && exit 0; sleep 0.1; done; sinfo; squeue; cat /fsx/logs/slipway/update-*; exit 1"


@pytest.fixture
def compute(slurm: Host, node: Host) -> Iterator[Host]:
    """The machine as head node and as gpu-1, both on release one; the state of gpu-1 is where its own setup puts it."""
    node.run(WAIT.format('[ "$(sinfo -h -o %T)" = idle ]'))
    name(node, "one")
    load(node, kind="compute")
    node.run("cd /fsx/logs/slipway/nodes && mv head.json gpu-1.json")
    yield node
    node.run("scancel --user=root; while squeue -h | grep -q .; do sleep 0.05; done")


def jobs(host: Host) -> list[str]:
    return host.run("squeue --noheader --user=root --name=slipway-update --format='%n %T'").stdout.splitlines()


def test_a_running_node_takes_the_release_when_its_job_has_ended(compute: Host) -> None:
    compute.run("sbatch --job-name=training --output=/dev/null --wrap 'while [ ! -e /srv/over ]; do sleep 0.05; done'")
    compute.run(WAIT.format("[ $(squeue -h -t running | wc -l) = 1 ]"))
    # A user's job of the same name is not the one that the node waits for.
    theirs = "sbatch --hold --nodelist=gpu-1 --job-name=slipway-update --chdir=/ --output=/dev/null --wrap true"
    compute.run(f"setpriv --reuid=nobody --regid=nogroup --clear-groups {theirs}")
    name(compute, "two")
    load(compute, SHA["two"])
    log = compute.run("cat /var/log/slipway/85-update-nodes.log").stdout
    assert f"1 nodes are up, 1 with another release than {SHA['two'][:12]}; submitted 1 jobs slipway-update" in log
    # Asked again, the one that waits is enough. The job that runs is not touched.
    assert " 1 with another release" in compute.run(UPDATE).stdout
    assert jobs(compute) == ["gpu-1 PENDING"]
    assert compute.run("squeue --noheader --name=training --format=%T").stdout == "RUNNING\n"
    compute.run("scancel --user=nobody; rm /srv/applied; touch /srv/over")
    compute.run(WAIT.format('[ -z "$(squeue -h)" ]'))
    compute.run("rm /srv/over")
    assert compute.run("cat /srv/applied").stdout == "two\n"
    assert "step compute/90-report ok" in compute.run("cat /fsx/logs/slipway/update-gpu-1.log").stdout
    # What the set-up of gpu-1 put there says the release, so that nothing is left to do.
    compute.run("cd /fsx/logs/slipway/nodes && mv head.json gpu-1.json")
    assert " 0 with another release" in compute.run(UPDATE).stdout
    assert jobs(compute) == []


def test_nodes_that_are_not_up_are_left_to_their_start(compute: Host) -> None:
    compute.run("scontrol update NodeName=gpu-1 State=DOWN Reason=test")
    name(compute, "two")
    load(compute)
    assert "0 nodes are up" in compute.run("cat /var/log/slipway/85-update-nodes.log").stdout
    assert jobs(compute) == []
    compute.run("scontrol update NodeName=gpu-1 State=RESUME")


def test_what_slurm_refuses_is_told(compute: Host) -> None:
    name(compute, "two")
    compute.put("/usr/local/sbin/sbatch", b"#!/bin/sh\necho 'sbatch: error: refused' >&2\nexit 1\n", 0o755)
    try:
        _, out = load(compute)
    finally:
        compute.run("rm /usr/local/sbin/sbatch")
    assert "WARNING host=head step=headnode/85-update-nodes exit=1" in out
    assert "no job could be submitted for gpu-1" in compute.run("cat /var/log/slipway/85-update-nodes.log").stdout
    for program, told in (("sinfo", "the nodes that are up"), ("squeue", "the jobs")):
        compute.put(f"/usr/local/sbin/{program}", b"#!/bin/sh\nexit 1\n", 0o755)
        done = compute.run(UPDATE, check=False)
        compute.run(f"rm /usr/local/sbin/{program}")
        assert (done.returncode, f"Slurm does not list {told}" in done.stdout) == (1, True)
