"""Configurations of elsewhere become settings, and every value of theirs is accounted for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.errors import SettingsError, UsageError
from slipway.exchange.export import export_pcluster
from slipway.exchange.import_report import leave_out_refused
from slipway.exchange.pcluster_file import read_configuration
from slipway.exchange.pcluster_import import import_pcluster, imported
from slipway.settings import load_settings
from tests.portability.strategies import loaded

FIXTURES = Path(__file__).parent / "configurations"
CONFIGURATIONS = sorted(FIXTURES.glob("*.yaml"))
BASE = """
Region: us-east-1
Image: {Os: ubuntu2204}
HeadNode:
  InstanceType: m5.8xlarge
  Networking:
    SubnetId: subnet-0123456789abcdef0
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: train
      Networking: {SubnetIds: [subnet-0123456789abcdef1]}
      ComputeResources:
        - Name: gpu
          InstanceType: g6.xlarge
          MinCount: 0
          MaxCount: 4
"""
OPTIONS = {"name": "moved", "zone": "us-east-1a", "vpc_id": "vpc-0123456789abcdef0"}
Report = dict[str, Any]


def written(folder: Path, text: str, name: str = "cluster.yaml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture
def bring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Report]]:
    """Import a text with --json; the exit code and the report."""

    def run(text: str, **options: str) -> tuple[int, Report]:
        capsys.readouterr()
        code = import_pcluster(written(tmp_path, text), as_json=True, **(options or OPTIONS))
        return code, json.loads(capsys.readouterr().out)

    return run


def settings_of(report: Report, folder: Path) -> Any:
    return load_settings(written(folder, report["settings"], "settings.yaml"))


def reason_of(report: Report, path: str) -> str:
    """Why `path` was not carried, or is to be filled in."""
    entries = report["not_carried"] + report["to_fill"]
    return next(entry["text"] for entry in entries if entry["path"] == path)


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_every_leaf_is_accounted_for_once(file: Path) -> None:
    result = imported(read_configuration(file), OPTIONS)
    leave_out_refused(result)
    assert result.ledger.rest() == []
    covered = [leaf for entry in result.ledger.entries if entry.path for leaf in result.ledger.below(entry.path)]
    assert set(covered) == set(result.ledger.leaves)
    for entry in result.ledger.entries:
        assert entry.text or entry.to, f"{entry.path} has neither a reason nor a place"


@pytest.mark.parametrize("file", CONFIGURATIONS, ids=lambda file: file.stem)
def test_the_written_file_names_all_that_is_open(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "settings.yaml"
    code = import_pcluster(file, target, region="us-east-1", **OPTIONS)
    text = target.read_text(encoding="utf-8")
    report = capsys.readouterr().err
    assert code == (0 if "0 to fill in, 0 not carried" in report else 1)
    for line in report.splitlines():
        match = re.match(r"  (\S+?)(?: -> \S+)?: ", line)
        if match and "/" in match[1] and not match[1].endswith("AllowedIps:"):
            assert match[1] in text or "to know" in report
    try:
        load_settings(target)
    except SettingsError as error:  # what is wrong has a comment next to it
        for fault in error.faults:
            line = text.splitlines()[fault.line - 1]
            assert "# " in line or fault.value is None, str(fault)


def test_a_command_after_the_configuration_is_a_fault_with_its_line(tmp_path: Path) -> None:
    text = f"{BASE}\n# To create it:\npcluster create-cluster --cluster-name demo --region us-east-1"
    line = text.count("\n") + 1
    with pytest.raises(SettingsError, match=rf":{line}:\d+: is not valid YAML"):
        import_pcluster(written(tmp_path, text))


def test_a_plain_cluster_is_carried_whole(bring: Callable[..., tuple[int, Report]], tmp_path: Path) -> None:
    code, report = bring(BASE.replace("MinCount: 0", "MinCount: 2"))
    assert (code, report["not_carried"], report["to_fill"]) == (0, [], [])
    settings = settings_of(report, tmp_path)
    assert settings.network.compute_subnet_id == "subnet-0123456789abcdef1"
    assert (settings.queues[0].min_count, settings.queues[0].max_count) == (2, 4)
    assert settings.acceptance.scenario == "none"  # no limits are known for this type
    assert any("acceptance is off" in note for note in report["notes"])


def test_the_acceptance_of_a_known_type_stays_on(bring: Callable[..., tuple[int, Report]], tmp_path: Path) -> None:
    text = BASE.replace("g6.xlarge", "p5.48xlarge").replace("MinCount: 0", "MinCount: 2")
    _, report = bring(text.replace("MaxCount: 4", "MaxCount: 2\n          Efa: {Enabled: true}"))
    settings = settings_of(report, tmp_path)
    assert settings.acceptance.scenario == "all-reduce"
    assert settings.queues[0].count == 2


MAXIMAL = FIXTURES / "everything-carried.yaml"


def test_everything_that_has_a_setting_is_carried(tmp_path: Path) -> None:
    target = tmp_path / "settings.yaml"
    code = import_pcluster(MAXIMAL, target, zone="us-east-1a", name="moved", vpc_id="vpc-0123456789abcdef0")
    assert code == 0
    settings = load_settings(target)
    assert settings == loaded(
        {
            "name": "moved",
            "region": "us-east-1",
            "zone": "us-east-1a",
            "os": "alinux2023",
            "iam": {"permissions_boundary": "arn:aws:iam::123456789012:policy/bounds", "name_prefix": "team-"},
            "network": {
                "vpc_id": "vpc-0123456789abcdef0",
                "head_node_subnet_id": "subnet-0123456789abcdef0",
                "compute_subnet_id": "subnet-0123456789abcdef1",
                "security_group_id": "sg-0123456789abcdef0",
            },
            "head_node": {
                "instance_type": "m6i.8xlarge",
                "root_volume_gib": 300,
                "key_pair": "operators",
                "ssh_from": "10.0.0.0/8",
                "security_group_ids": ["sg-0123456789abcdef9"],
                "scripts": [{"url": "s3://site/head.sh", "arguments": ["one", "two"]}, {"url": "s3://site/more.sh"}],
                "policy_arns": ["arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"],
            },
            "queues": [
                {
                    "name": "train",
                    "instance_type": "p5.48xlarge",
                    "count": 2,
                    "reservation": {"kind": "capacity-block", "id": "cr-0123456789abcdef0"},
                    "efa": True,
                    "scripts": [{"url": "s3://site/compute.sh"}],
                    "policy_arns": ["arn:aws:iam::123456789012:policy/data"],
                    "slurm_settings": {"MaxTime": "1-00:00:00"},
                },
                {
                    "name": "reserved",
                    "instance_type": "p4d.24xlarge",
                    "count": 1,
                    "reservation": {"kind": "on-demand", "id": "cr-0123456789abcdef7"},
                    "efa": True,
                },
                {"name": "prepare", "instance_type": "c6i.8xlarge", "max_count": 10, "spot": True},
                {
                    "name": "grouped",
                    "instance_type": "g5.48xlarge",
                    "max_count": 4,
                    "placement_group": "rack",
                    "efa": True,
                },
            ],
            "storage": {
                "fsx": {
                    "deployment": "persistent-1",
                    "capacity_gib": 2400,
                    "throughput_mb_s_per_tib": 100,
                    "compression": "lz4",
                },
                "bucket": "data",
                "associations": [
                    {"path": "/datasets", "prefix": "datasets/", "export_changes": True},
                    {"path": "/out", "prefix": "out/", "import_changes": False, "export_changes": True},
                ],
                "home": {"kind": "ebs", "size_gib": 500},
                "mounts": [
                    {"path": "/apps", "kind": "efs", "id": "fs-0123456789abcdef5"},
                    {"path": "/scratch-zfs", "kind": "fsx-openzfs", "id": "fsvol-0123456789abcdef5"},
                ],
            },
            "slurm": {
                "idle_minutes": 60,
                "database": {
                    "host": "db.example.com",
                    "port": 3307,
                    "user": "slurm",
                    "password_secret_arn": "arn:aws:secretsmanager:us-east-1:123456789012:secret:db-AbCdEf",
                },
                "settings": {"SlurmdTimeout": 600, "MessageTimeout": 120},
            },
            "observability": {"retention_days": 7},
            "tags": {"team": "ml"},
        }
    )


@pytest.mark.parametrize(
    ("old", "new", "path", "words"),
    [
        ("Os: ubuntu2204", "Os: alinux2", "Image/Os", "alinux2023 is written instead"),
        ("Os: ubuntu2204", "Os: ubuntu2204, CustomAmi: ami-0123456789abcdef0", "Image/CustomAmi", "ParallelCluster's own image"),
        ("m5.8xlarge", "t3.medium", "HeadNode/InstanceType", "t3.medium is not an instance type that Slipway knows"),
        ("m5.8xlarge", "t3.medium", "HeadNode/InstanceType", "; the default m5.8xlarge applies instead"),
        ("  Scheduler: slurm", "  Scheduler: awsbatch", "Scheduling/Scheduler", "Slipway writes slurm"),
        ("MaxCount: 4", "MaxCount: 4\n          SpotPrice: 3", "Scheduling/SlurmQueues[0]/ComputeResources[0]/SpotPrice", "on-demand price"),
        ("Name: gpu", "Name: old", "Scheduling/SlurmQueues[0]/ComputeResources[0]/Name", "Slipway writes gpu"),
        ("InstanceType: g6.xlarge", "Instances: [{InstanceType: g6.xlarge}, {InstanceType: g6.2xlarge}]", "Scheduling/SlurmQueues[0]/ComputeResources[0]/Instances[1]", "one instance type"),
        ("MaxCount: 4", "MaxCount: 4\n        - {Name: two, InstanceType: g6.xlarge}", "Scheduling/SlurmQueues[0]/ComputeResources[1]", "one compute resource"),
        ("SubnetIds: [", "SubnetIds: [subnet-0123456789abcdef1, ", "Scheduling/SlurmQueues[0]/Networking/SubnetIds[1]", "share one subnet"),
        ("Image:", "LoginNodes: {Pools: [{Name: a, InstanceType: t3.micro, Ssh: {KeyName: k}}]}\nImage:", "LoginNodes", "log in to the head node"),
        ("Image:", "Imds: {ImdsSupport: v1.0}\nImage:", "Imds/ImdsSupport", "Slipway writes v2.0"),
        ("Image:", "Tags: [{Key: project, Value: old}]\nImage:", "Tags[0]", "always the cluster's name"),
        ("Image:", "SharedStorage: [{Name: e, StorageType: Ebs, MountDir: /data, EbsSettings: {Size: 9}}]\nImage:", "SharedStorage[0]", "no setting for such a file system"),
        ("Image:", "Monitoring: {Logs: {CloudWatch: {Enabled: false}}}\nImage:", "Monitoring/Logs/CloudWatch/Enabled", "Slipway writes true"),
        ("  Networking:\n    SubnetId", "  CustomActions: {OnNodeStart: {Script: 'https://example.com/x.sh'}}\n  Networking:\n    SubnetId", "HeadNode/CustomActions/OnNodeStart", "no script of yours runs at OnNodeStart"),
        ("  Networking:\n    SubnetId", "  CustomActions: {OnNodeConfigured: {Script: 'https://example.com/x.sh'}}\n  Networking:\n    SubnetId", "HeadNode/CustomActions/OnNodeConfigured", "scripts come from S3"),
        ("  Networking:\n    SubnetId", "  CustomActions: {OnNodeConfigured: {Sequence: [{Script: 'https://x/nccl/postinstall.sh', Args: [v2.23.4-1, v1.11.0-aws]}]}}\n  Networking:\n    SubnetId", "HeadNode/CustomActions/OnNodeConfigured/Sequence[0]", "set nccl.source: shared with v2.23.4-1/v1.11.0-aws"),
        ("  Networking:\n    SubnetId", "  Ssh: {KeyName: k, AllowedIps: pl-0123456789abcdef0}\n  Networking:\n    SubnetId", "HeadNode/Ssh/AllowedIps", "must be an IPv4 network"),
    ],
)  # fmt: skip
def test_what_is_not_carried_is_told_with_a_reason(
    bring: Callable[..., tuple[int, Report]], tmp_path: Path, old: str, new: str, path: str, words: str
) -> None:
    assert old in BASE
    code, report = bring(BASE.replace(old, new, 1))
    assert code == 1
    assert words in reason_of(report, path)
    assert report["faults"] == []
    settings_of(report, tmp_path)  # and the rest is valid


def test_an_existing_home_volume_is_carried(bring: Callable[..., tuple[int, Report]], tmp_path: Path) -> None:
    home = (
        "SharedStorage: [{Name: h, StorageType: Ebs, MountDir: /home, EbsSettings: {VolumeId: vol-0123456789abcdef0}}]"
    )
    _, report = bring(BASE.replace("Image:", f"{home}\nImage:", 1))
    taken = settings_of(report, tmp_path).storage.home
    assert (taken.kind, taken.volume_id, taken.size_gib) == ("ebs", "vol-0123456789abcdef0", None)


def test_a_group_and_a_reservation_keep_the_reservation(
    bring: Callable[..., tuple[int, Report]], tmp_path: Path
) -> None:
    text = BASE.replace(
        "Networking: {SubnetIds: [subnet-0123456789abcdef1]}",
        "Networking: {SubnetIds: [subnet-0123456789abcdef1], PlacementGroup: {Enabled: true}}",
    )
    text = text.replace(
        "MaxCount: 4", "MaxCount: 4\n          CapacityReservationTarget: {CapacityReservationId: cr-0123456789abcdef0}"
    )
    code, report = bring(text)
    assert code == 1
    assert "insufficient capacity" in reason_of(report, "Scheduling/SlurmQueues[0]/Networking/PlacementGroup/Enabled")
    assert settings_of(report, tmp_path).queues[0].reservation.kind == "on-demand"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("HeadNode:", "HeadNod:", "HeadNod: is not a key of ParallelCluster 3.16.1. Hint: did you mean HeadNode?"),
        ("MinCount: 0", "MinCount: few", "Scheduling/SlurmQueues[0]/ComputeResources[0]/MinCount = 'few': must be a whole number"),
        ("{Os: ubuntu2204}", "ubuntu2204", "Image = 'ubuntu2204': must be a table of keys"),
        ("[subnet-0123456789abcdef1]", "subnet-0123456789abcdef1", "SubnetIds = 'subnet-0123456789abcdef1': must be a list"),
        ("Os: ubuntu2204", "Os: 22.04", "Image/Os = 22.04: must be text"),
        ("{Os: ubuntu2204}", "[1, 2]", "Image"),
        ("Image: {Os: ubuntu2204}", "Image: &a {Os: ubuntu2204}\nImds: *a", "uses a YAML alias"),
        ("Image: {Os: ubuntu2204}", "Image: {Os: ubuntu2204", "is not valid YAML"),
        ("Image:", "Region: us-east-1\nImage:", "Region"),
        ("  SlurmQueues:", "  SlurmQueue:", "did you mean SlurmQueues?"),
    ],
)  # fmt: skip
def test_bad_input_is_told_with_its_place(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = written(tmp_path, BASE.replace(old, new, 1))
    with pytest.raises(SettingsError) as caught:
        import_pcluster(file, tmp_path / "out.yaml")
    assert words in str(caught.value)
    assert re.search(rf"{re.escape(str(file))}:\d+:\d+: ", str(caught.value))
    assert not (tmp_path / "out.yaml").exists()


@pytest.mark.parametrize(
    "text", ["", "just text", "[1, 2]", "a: 1\n---\nb: 2\n", "Region: x\n", "\x00", "{", "? [a]\n: b\n"]
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError):
        import_pcluster(written(tmp_path, text))


def test_all_faults_come_at_once(tmp_path: Path) -> None:
    text = BASE.replace("HeadNode:", "HeadNod:").replace("MinCount: 0", "MinCount: few").replace("Image:", "Imag:")
    with pytest.raises(SettingsError) as caught:
        import_pcluster(written(tmp_path, text))
    assert len(caught.value.faults) == 3


@pytest.mark.parametrize(
    "placeholder", ["${X}", "$X", "{your-value}", "{{ x }}", "<your value>", "'{{ x }}'", "!Ref X"]
)
@pytest.mark.parametrize(
    ("old", "setting"),
    [
        ("subnet-0123456789abcdef0", "network.head_node_subnet_id"),
        ("g6.xlarge", "queues[0].instance_type"),
        ("MaxCount: 4", "queues[0].max_count"),
        ("us-east-1", "region"),
    ],
)
def test_placeholders_are_to_fill_in_and_named_by_check(
    bring: Callable[..., tuple[int, Report]], tmp_path: Path, placeholder: str, old: str, setting: str
) -> None:
    new = f"MaxCount: {placeholder}" if old.startswith("MaxCount") else placeholder
    code, report = bring(BASE.replace(old, new, 1))
    assert code == 1
    assert [entry["setting"] for entry in report["to_fill"]] == [setting]
    with pytest.raises(SettingsError) as caught:
        settings_of(report, tmp_path)
    assert setting in {fault.path for fault in caught.value.faults}
    line = report["settings"].splitlines()[caught.value.faults[0].line - 1]
    assert "fill in" in line


def test_variables_take_the_place_of_placeholders(tmp_path: Path) -> None:
    template = BASE.replace("g6.xlarge", "${INSTANCE}").replace("MaxCount: 4", "MaxCount: ${NUM_INSTANCES}")
    template = template.replace("MinCount: 0", "MinCount: ${NUM_INSTANCES}")
    variables = written(tmp_path, "export INSTANCE=g6.2xlarge\nexport NUM_INSTANCES=3\n", "env_vars")
    target = tmp_path / "settings.yaml"
    assert import_pcluster(written(tmp_path, template), target, variables=variables, **OPTIONS) == 0
    queue = load_settings(target).queues[0]
    assert (queue.instance_type, queue.count) == ("g6.2xlarge", 3)


def test_what_is_missing_is_marked_and_named(bring: Callable[..., tuple[int, Report]]) -> None:
    code, report = bring(BASE, region="us-west-2")
    assert code == 1
    assert {entry["setting"] for entry in report["to_fill"]} == {"name", "zone", "network.vpc_id"}
    assert "name: <fill in> # the cluster's name, --name; it is not in the file" in report["settings"]
    assert "region: us-west-2" in report["settings"]


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    target = written(tmp_path, "mine", "settings.yaml")
    with pytest.raises(UsageError, match="exists already"):
        import_pcluster(written(tmp_path, BASE), target)
    assert target.read_text(encoding="utf-8") == "mine"
    import_pcluster(written(tmp_path, BASE), target, force=True, **OPTIONS)
    assert load_settings(target).name == "moved"


def test_open_ssh_is_not_closed_in_silence(bring: Callable[..., tuple[int, Report]]) -> None:
    _, report = bring(
        BASE.replace("  Networking:\n    SubnetId", "  Ssh: {KeyName: mine}\n  Networking:\n    SubnetId")
    )
    assert any("ParallelCluster then opens SSH to every address" in note for note in report["notes"])


def test_secrets_are_not_repeated(bring: Callable[..., tuple[int, Report]]) -> None:
    secret = "AKIA" + "ABCDEFGHIJKLMNOP"
    text = BASE.replace(
        "  Networking:\n    SubnetId",
        f"  CustomActions: {{OnNodeConfigured: {{Script: s3://bucket/x.sh, Args: [{secret}]}}}}\n  Networking:\n    SubnetId",
    )
    code, report = bring(text)
    assert code == 1
    assert secret not in json.dumps(report)


# ---- edits after an export ----


BEFORE = {
    "name": "before",
    "region": "us-west-2",
    "zone": "us-west-2c",
    "queues": [
        {
            "name": "train",
            "instance_type": "p5.48xlarge",
            "count": 16,
            "reservation": {"kind": "on-demand", "id": "cr-0123456789abcdef0"},
            "efa": True,
        },
        {"name": "cpu", "instance_type": "c6i.8xlarge", "max_count": 8},
    ],
    "storage": {"associations": [{"path": "/datasets", "prefix": "datasets/"}]},
    "observability": {"alert_email": "a@example.com"},
    "images": ["docker://nvcr.io#nvidia/pytorch:24.01-py3"],
    "budget": {"monthly_usd": 900000},
}


@pytest.fixture
def exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    target = tmp_path / "exported.yaml"
    export_pcluster(written(tmp_path, json.dumps(BEFORE), "before.yaml"), target)
    capsys.readouterr()
    return target


def edited(file: Path, old: str, new: str) -> Path:
    text = file.read_text(encoding="utf-8")
    body, block = text.split("\n# What ParallelCluster", 1)
    assert old.replace("??", "in") in body
    for letters in ("in", "ax") if "??" in old else ("",):
        body = body.replace(old.replace("??", letters), new.replace("??", letters), 1)
    file.write_text(f"{body}\n# What ParallelCluster{block}", encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("old", "new", "value", "words"),
    [
        ("M??Count: 16", "M??Count: 8", lambda s: s.queues[0].count == 8, "queues[0]: count 8 instead of count 16"),
        ("RetentionInDays: 30", "RetentionInDays: 90", lambda s: s.observability.retention_days == 90, "observability.retention_days: 90 instead of nothing"),
        ("Size: 200", "Size: 400", lambda s: s.head_node.root_volume_gib == 400, "head_node.root_volume_gib: 400"),
        ("Name: cpu\n", "Name: data\n", lambda s: [q.name for q in s.queues] == ["train", "data"], "queues: cpu is gone"),
        ("AllowedIps: 127.0.0.1/32", "AllowedIps: 10.0.0.0/8\n    KeyName: mine", lambda s: s.head_node.ssh_from == "10.0.0.0/8", "head_node.ssh_from: 10.0.0.0/8 instead of nothing"),
        ("us-west-2", "us-east-2", lambda s: s.region == "us-east-2", "region: us-east-2 instead of us-west-2"),
    ],
)  # fmt: skip
def test_an_edited_configuration_wins_over_its_block(
    exported: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    value: Callable[[Any], bool],
    words: str,
) -> None:
    target = tmp_path / "back.yaml"
    import_pcluster(edited(exported, old, new), target, zone="us-east-2a" if "us-east-2" in new else None)
    report = capsys.readouterr().err
    assert "the configuration wins over its block" in report
    assert words in report
    back, before = load_settings(target), loaded(BEFORE)
    assert value(back)
    assert (back.images, back.budget, back.storage) == (before.images, before.budget, before.storage)


def test_what_was_taken_out_and_is_written_again_is_told(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = import_pcluster(edited(exported, "  Alarms:\n    Enabled: true\n", ""), as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert code == 1
    assert reason_of(report, "Monitoring/Alarms/Enabled") == "was taken out of the file; Slipway writes it again"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("# slipway: version: 1", "# slipway: version: 2", "has version 2, this release of Slipway reads 1"),
        ("# slipway: version: 1\n", "", "has no version"),
        ("# slipway: settings:", "# slipway: settings: [", "is not valid YAML any more"),
        ("monthly_usd: 900000", "monthly_usd: much", "holds settings that are not valid: budget.monthly_usd"),
    ],
)
def test_a_broken_block_is_told_and_the_rest_carried(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    text = exported.read_text(encoding="utf-8")
    assert old in text
    file = written(tmp_path, text.replace(old, new))
    assert import_pcluster(file, as_json=True, zone="us-west-2c") == 1
    report = json.loads(capsys.readouterr().out)
    assert any(words in entry["text"] for entry in report["not_carried"])
    assert settings_of(report, tmp_path).name == "before"
