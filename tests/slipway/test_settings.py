"""The settings: good files load, every kind of fault is reported with place, value, rule and hint, all at once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from acceptance.scenario import load_scenario
from slipway.bundle import acceptance_scenario
from slipway.errors import SettingsError
from slipway.settings import Settings, load_settings
from slipway.settings.check import REASONS_BY_NAME

CLUSTERS = Path(__file__).resolve().parents[2] / "clusters"

GOOD = """\
name: demo
region: us-east-1
zone: us-east-1a
queues:
  - name: train
    instance_type: p5.48xlarge
    count: 4
    efa: true
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "demo.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def faults(tmp_path: Path, text: str) -> list[str]:
    """Each fault as its text, without the folder of the file, the column and the rule's name."""
    file = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    assert all(fault.rule_name in REASONS_BY_NAME for fault in caught.value.faults)
    told = [str(fault).removesuffix(f" [{fault.rule_name}]") for fault in caught.value.faults]
    return [re.sub(r"^(demo.yaml:\d+):\d+:", r"\1:", text.replace(f"{tmp_path}/", "")) for text in told]


@pytest.mark.parametrize("file", sorted(CLUSTERS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_example_is_good(file: Path) -> None:
    assert isinstance(load_settings(file), Settings)


def test_defaults_and_counts_are_filled(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, GOOD))
    queue = settings.queues[0]
    assert (queue.min_count, queue.max_count) == (4, 4)
    assert settings.network.cidr == "10.0.0.0/16"
    assert settings.acceptance.max_bytes == 16 * 1024**3
    assert settings.gpu_queue is queue


def test_settings_are_frozen(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, GOOD))
    with pytest.raises(ValueError, match="frozen"):
        settings.name = "other"  # type: ignore[misc]


# One row: what is in GOOD, what replaces it, and the exact fault.
ONE_FAULT = [
    ("name: demo", "name: Demo", "demo.yaml:1: name = 'Demo': must be 2 to 40 characters: a lower-case letter, then letters, digits or -, no - last"),
    ("name: demo", "nam: demo", "demo.yaml:1: nam = 'demo': is not a known key. Hint: did you mean name?"),
    ("zone: us-east-1a", "zone: us-west-2a", "demo.yaml:3: zone = 'us-west-2a': is not a zone of the region us-east-1. Hint: write us-east-1a, or change the region"),
    ("p5.48xlarge", "p5.48xlage", "demo.yaml:6: queues[0].instance_type = 'p5.48xlage': is not an instance type that Slipway knows. Hint: did you mean p5.48xlarge?"),
    ("count: 4", "count: four", "demo.yaml:7: queues[0].count = 'four': must be a whole number"),
    ("count: 4", 'count: "4"', "demo.yaml:7: queues[0].count = '4': must be a whole number"),
    ("count: 4", "count: 0", "demo.yaml:7: queues[0].count = 0: must be greater than or equal to 1"),
    ("count: 4", "count: 4\n    max_count: 5", "demo.yaml:5: queues[0]: has both count and min_count/max_count. Hint: give count, or the other two"),
    ("    count: 4\n", "", "demo.yaml:5: queues[0]: needs count (static nodes) or max_count (dynamic nodes). Hint: for example count: 2"),
    ("efa: true", "efa: yes", "demo.yaml:8: queues[0].efa = 'yes': must be true or false"),
    ("efa: true", "efa: false", "demo.yaml:8: queues[0].efa = false: without EFA NCCL uses none of the 32 network cards of the type. Hint: set efa: true"),
    ("instance_type: p5.48xlarge", "instance_type: g6.xlarge", "demo.yaml:8: queues[0].efa = true: g6.xlarge has no EFA interface. Hint: set efa: false, or take a type with EFA"),
    ("efa: true", "efa: true\n    spot: true\n    reservation: {kind: on-demand, id: cr-0123456789abcdef0}", "demo.yaml:9: queues[0].spot = true: spot instances cannot come from a reservation. Hint: set spot: false, or drop the reservation"),
    ("efa: true", "efa: true\n    reservation: {kind: block, id: cr-0123456789abcdef0}", "demo.yaml:9: queues[0].reservation.kind = 'block': must be one of capacity-block or on-demand"),
    ("efa: true", "efa: true\n    reservation: {kind: on-demand, id: cr-1}", "demo.yaml:9: queues[0].reservation.id = 'cr-1': must be a capacity reservation id such as cr-0123456789abcdef0"),
    ("efa: true", "efa: true\n    placement_group: true\n    reservation: {kind: on-demand, id: cr-0123456789abcdef0}", "demo.yaml:9: queues[0].placement_group = true: a placement group that the reservation was not made in ends in insufficient capacity. Hint: set placement_group: false, or name the group that the reservation was made in"),
    ("count: 4", "min_count: 1\n    max_count: 4\n    reservation: {kind: capacity-block, id: cr-0123456789abcdef0}", "demo.yaml:8: queues[0].max_count = 4: a capacity block needs min_count equal to max_count. Hint: give count instead"),
    ("count: 4", "count: 65\n    reservation: {kind: capacity-block, id: cr-0123456789abcdef0}", "demo.yaml:7: queues[0].count = 65: a capacity block holds at most 64 instances. Hint: take several blocks, each with a queue"),
    ("count: 4", "min_count: 5\n    max_count: 4", "demo.yaml:8: queues[0].max_count = 4: must be at least 1 and at least min_count (5). Hint: raise max_count"),
]  # fmt: skip

# One row: what is added to GOOD, and the exact fault.
ONE_FAULT_ADDED = [
    ("network: {cidr: 10.0.0.1/16}", "demo.yaml:9: network.cidr = '10.0.0.1/16': must be an IPv4 network such as 10.0.0.0/16, with no host bits set"),
    ("network: {cidr: 10.0.0.0/8}", "demo.yaml:9: network.cidr = '10.0.0.0/8': a new VPC needs a prefix of /16 to /24. Hint: for example 10.0.0.0/16"),
    ("network: {}", "demo.yaml:9: network: needs cidr, or the three ids of an existing VPC. Hint: for example cidr: 10.0.0.0/16"),
    ("network: {vpc_id: vpc-0123456789abcdef0}", "demo.yaml:9: network: an existing VPC also needs head_node_subnet_id, compute_subnet_id. Hint: give all three ids"),
    ("network: {cidr: 10.0.0.0/16, vpc_id: vpc-0123456789abcdef0}", "demo.yaml:9: network: has both cidr and vpc_id. Hint: give cidr for a new VPC, or the three ids for an existing one"),
    ("head_node: {instance_type: m5.large, ssh_from: 10.0.0.0/8}", "demo.yaml:9: head_node.ssh_from = '10.0.0.0/8': opens SSH, but there is no key_pair to log in with. Hint: name a key pair, or leave both out and use Session Manager"),
    ("head_node: {instance_type: c5.large}", "demo.yaml:9: head_node.instance_type = 'c5.large': has 4 GiB of memory, the head node needs 8. Hint: m5.2xlarge or larger"),
    ("head_node: {instance_type: p5.4xlarge}", "demo.yaml:9: head_node.instance_type = 'p5.4xlarge': the head node needs no GPU. Hint: take a type such as m5.8xlarge"),
    ("storage: {fsx: {capacity_gib: 5000, throughput_mb_s_per_tib: 250}}", "demo.yaml:9: storage.fsx.capacity_gib = 5000: must be 1200 or a multiple of 2400 GiB. Hint: the nearest are 4800 and 7200"),
    ("storage: {fsx: {capacity_gib: 2400, throughput_mb_s_per_tib: 300}}", "demo.yaml:9: storage.fsx.throughput_mb_s_per_tib = 300: must be one of 125, 250, 500, 1000 MB/s per TiB for persistent-2. Hint: for example 250"),
    ("storage: {fsx: {deployment: scratch-2, throughput_mb_s_per_tib: 125}}", "demo.yaml:9: storage.fsx.throughput_mb_s_per_tib = 125: scratch-2 has a fixed throughput. Hint: leave it out"),
    ("storage: {associations: [{path: /a, prefix: a/}, {path: /, prefix: b/}]}", "demo.yaml:9: storage.associations[1].path = '/': / links the whole file system and can only be the first and only association. Hint: give it a folder"),
    ("storage: {associations: [{path: /a, prefix: a/}, {path: /a/b, prefix: b/}]}", "demo.yaml:9: storage.associations[1].path = '/a/b': overlaps /a of associations[0]. Hint: give each association a separate folder"),
    ("storage: {home: {kind: ebs}}", "demo.yaml:9: storage.home: an EBS home needs size_gib. Hint: for example size_gib: 500; or volume_id for an existing volume"),
    ("storage: {bucket: Bad_Name}", "demo.yaml:9: storage.bucket = 'Bad_Name': must be an S3 bucket name: 3 to 63 lower-case letters, digits, dots or -"),
    ("observability: {retention_days: 31}", "demo.yaml:9: observability.retention_days = 31: must be one of 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827 or 3653"),
    ("images: [nvcr.io/nvidia/pytorch]", "demo.yaml:9: images[0] = 'nvcr.io/nvidia/pytorch': must be an image such as docker://nvcr.io#nvidia/pytorch:24.01-py3"),
    ("ngc_secret_arn: hunter2", "demo.yaml:9: ngc_secret_arn = (not shown): must be the ARN of a Secrets Manager secret, never the secret itself"),
    ("ngc_secret_arn: arn:aws:secretsmanager:us-west-2:123456789012:secret:ngc-AbCdEf", "demo.yaml:9: ngc_secret_arn = 'arn:aws:secretsmanager:us-west-2:123456789012:secret:ngc-AbCdEf': is not in the region us-east-1. Hint: make the secret in the cluster's region"),
    ("nccl: {nccl_version: 2.28.7}", "demo.yaml:9: nccl.nccl_version = '2.28.7': must be an NCCL release tag such as v2.28.7-1"),
    ("acceptance: {max_bytes: 16MB}", "demo.yaml:9: acceptance.max_bytes = '16MB': must be a size such as 16MiB (B, KiB, MiB, GiB, TiB) or a number of bytes"),
    ("acceptance: {max_bytes: 16MiB}", "demo.yaml:9: acceptance: no limit is known for an all_reduce on 4 x p5.48xlarge at a size of this sweep. Hint: give acceptance.limits one for 4 nodes, or set scenario: none (known are 1, 2, 4-16, 32 nodes of this type)"),
    ("acceptance: {min_bytes: 32GiB, scenario: none}", "demo.yaml:9: acceptance.min_bytes = '32GiB': is larger than max_bytes. Hint: swap them"),
    ("acceptance: {timeout_minutes: 600}", "demo.yaml:9: acceptance.timeout_minutes = 600: must be less than or equal to 50"),
    ("acceptance: {limits: [{collective: all_reduce, nodes: 8, size: 1GiB, fail_below_gb_per_s: 1, source: x, date: 2026-01-01}]}", "demo.yaml:9: acceptance.limits[0].nodes = 8: is more than the 4 nodes of queue train. Hint: limits are for this cluster's node counts"),
    ("acceptance: {limits: [{collective: all_reduce, nodes: 4, size: 1GiB, fail_below_gb_per_s: 1, source: x, date: 2026-13-01}]}", "demo.yaml:9: acceptance.limits[0].date = '2026-13-01': must be a date such as 2026-11-27"),
    ("network: {cidr: 224.0.0.0/16}", "demo.yaml:9: network.cidr = '224.0.0.0/16': must be in a private range: 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, 100.64.0.0/10"),
    ("network: {cidr: 1}", "demo.yaml:9: network.cidr = 1: must be an IPv4 network such as 10.0.0.0/16, with no host bits set"),
    ("observability: {retention_days: true}", "demo.yaml:9: observability.retention_days = true: must be a whole number"),
    ("storage: {associations: [{path: /a/../b}]}", "demo.yaml:9: storage.associations[0].path = '/a/../b': must be an absolute path on the file system such as /datasets"),
    ("acceptance: {limits: [{collective: all_reduce, nodes: 4, size: 3GiB, fail_below_gb_per_s: 1, source: x, date: 2026-01-01}]}", "demo.yaml:9: acceptance.limits[0].size = '3GiB': is not a size that the sweep visits: min_bytes doubled again and again. Hint: take such a size"),
    ("acceptance: {limits: [{collective: all_reduce, nodes: 4, size: 1GiB, fail_below_gb_per_s: .inf, source: x, date: 2026-01-01}]}", "demo.yaml:9: acceptance.limits[0].fail_below_gb_per_s = inf: must be less than or equal to 1000000"),
    ("acceptance: {limits: [{collective: all_reduce, nodes: 4, size: 1GiB, fail_below_gb_per_s: true, source: x, date: 2026-01-01}]}", "demo.yaml:9: acceptance.limits[0].fail_below_gb_per_s = true: must be a number"),
    ('acceptance: {limits: [{collective: all_reduce, nodes: 4, size: 1GiB, fail_below_gb_per_s: 1, source: "a\\nb", date: 2026-01-01}]}', "demo.yaml:9: acceptance.limits[0].source = 'a\\nb': must be one line of 1 to 300 characters"),
    ("acceptance: {max_bytes: 4096TiB}", "demo.yaml:9: acceptance.max_bytes = '4096TiB': must be less than or equal to 1125899906842624"),
    ("budget: {monthly_usd: 5}", "demo.yaml:9: budget: needs an address to report to. Hint: set observability.alert_email"),
    ("budget: 5", "demo.yaml:9: budget = 5: must be a table of keys"),
    ("name: other", 'demo.yaml:9: name: is there twice, first on line 1. Hint: keep one of them'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "fault"), ONE_FAULT, ids=[row[1].split("\n")[0] or "left out" for row in ONE_FAULT]
)
def test_one_fault(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert fault in faults(tmp_path, GOOD.replace(old, new))


@pytest.mark.parametrize(("added", "fault"), ONE_FAULT_ADDED, ids=[row[0][:50] for row in ONE_FAULT_ADDED])
def test_one_fault_added(tmp_path: Path, added: str, fault: str) -> None:
    assert faults(tmp_path, f"{GOOD}{added}\n") == [fault]


def test_one_node_with_one_gpu_is_refused_because_no_limit_can_be_met(tmp_path: Path) -> None:
    """Even with a limit for one node: the bus bandwidth of one rank is 0 by definition."""
    limit = "acceptance: {limits: [{collective: all_reduce, nodes: 1, size: 4GiB, fail_below_gb_per_s: 1, source: x, date: 2026-01-01}]}\n"
    text = GOOD.replace("p5.48xlarge", "p5.4xlarge").replace("count: 4", "count: 1")
    rule = "acceptance: one node with one GPU exchanges data with no other: its bus bandwidth is 0, and no limit can be met"
    hint = "Hint: take 2 nodes or more, or set scenario: none"
    assert faults(tmp_path, text) == [f"demo.yaml:1: {rule}. {hint}"]
    assert faults(tmp_path, text + limit) == [f"demo.yaml:9: {rule}. {hint}"]
    assert load_settings(write(tmp_path, text.replace("count: 1", "count: 2"))).acceptance.scenario == "all-reduce"


def test_all_faults_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = GOOD.replace("zone: us-east-1a", "zone: us-west-2a").replace("count: 4", "count: four")
    text += "storage: {fsx: {capacity_gib: 5000, throughput_mb_s_per_tib: 300}}\nhead_nod: {}\n"
    told = faults(tmp_path, text)
    assert [line.split(":")[1] for line in told] == sorted((line.split(":")[1] for line in told), key=int)
    assert any("count = 'four'" in line for line in told)
    assert any("did you mean head_node?" in line for line in told)


def test_a_wrong_type_does_not_hide_the_rules_of_other_tables(tmp_path: Path) -> None:
    text = GOOD.replace("zone: us-east-1a", "zone: us-west-2a").replace("count: 4", 'count: "4"')
    text += "storage: {fsx: {capacity_gib: 1300, throughput_mb_s_per_tib: 300}}\nhead_node: {instance_type: c5.large}\n"
    told = faults(tmp_path, text)
    assert [line.split(" = ")[0].split(": ")[1] for line in told] == [
        "zone",
        "queues[0].count",
        "storage.fsx.capacity_gib",
        "storage.fsx.throughput_mb_s_per_tib",
        "head_node.instance_type",
    ]


def test_a_missing_name_does_not_hide_the_rules(tmp_path: Path) -> None:
    told = faults(tmp_path, GOOD.replace("name: demo\n", "").replace("zone: us-east-1a", "zone: us-west-2a"))
    assert ["name: is missing" in told[0], "is not a zone of the region" in told[1], len(told)] == [True, True, 2]


def test_a_wrong_key_does_not_hide_the_rules(tmp_path: Path) -> None:
    told = faults(tmp_path, GOOD.replace("zone: us-east-1a", "zone: us-west-2a") + "colour: red\n")
    assert len(told) == 2
    assert "is not a zone of the region" in told[0]
    assert "colour = 'red': is not a known key" in told[1]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "demo.yaml:1: the file is empty. Hint: start from one of clusters/*.yaml"),
        ("- 1\n", "demo.yaml:1: the file is not a table of keys. Hint: start from one of clusters/*.yaml"),
        ("a: [1\n", "demo.yaml:2: is not valid YAML: expected ',' or ']', but got '<stream end>'. Hint: check indentation, colons and quotes"),
        ("a: 'x\n", "demo.yaml:2: is not valid YAML: found unexpected end of stream. Hint: check indentation, colons and quotes"),
    ],
)  # fmt: skip
def test_broken_yaml(tmp_path: Path, text: str, fault: str) -> None:
    assert faults(tmp_path, text) == [fault]


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "demo.yaml:2: uses a YAML alias (*name)"),
        ("&a\nname: *a\n", "uses a YAML alias"),
        ("x: &x\n  <<: *x\n", "uses a YAML alias"),
        ("[" * 5000, "is nested deeper than 20 levels"),
        ("name: 0x" + "f" * 6000 + "\n", "name = '0xffff"),
        (
            "name: demo\nzone: \x00\n",
            "demo.yaml:2: is not valid YAML: unacceptable character U+0000. Hint: save it as",
        ),
    ],
    ids=["bomb", "in itself", "merged with itself", "deep", "long number", "null byte"],
)
def test_hostile_yaml_is_told_at_once(tmp_path: Path, text: str, words: str) -> None:
    told = faults(tmp_path, text)
    assert any(words in line for line in told), told


@pytest.mark.parametrize("special", ["/dev/zero", "fifo"])
def test_only_a_regular_file_is_read(tmp_path: Path, special: str) -> None:
    file = Path(special) if special.startswith("/") else tmp_path / "fifo"
    if special == "fifo":
        os.mkfifo(file)
    with pytest.raises(SettingsError, match="is not a regular file"):
        load_settings(file)


@pytest.mark.parametrize("file", sorted(CLUSTERS.glob("*.yaml")), ids=lambda file: file.stem)
def test_what_check_takes_acceptance_takes(tmp_path: Path, file: Path) -> None:
    scenario = tmp_path / "acceptance.json"
    scenario.write_text(json.dumps(acceptance_scenario(load_settings(file))), encoding="utf-8")
    assert load_scenario(scenario).nodes >= 1


def test_missing_file_names_the_neighbours(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    with pytest.raises(SettingsError, match=r"demo2.yaml: no such file. Hint: files there: .*demo.yaml"):
        load_settings(tmp_path / "demo2.yaml")


def test_a_link_that_leads_nowhere_is_named_and_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "link.yaml").symlink_to("gone.yaml")
    with pytest.raises(SettingsError, match=r"link.yaml: is a link to gone.yaml, which does not exist. Hint: name the"):
        load_settings(tmp_path / "link.yaml")
    with pytest.raises(SettingsError, match=r"other.yaml: no such file. Hint: look in clusters/"):
        load_settings(tmp_path / "other.yaml")


def test_a_folder_is_no_settings_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is a folder"):
        load_settings(tmp_path)


def test_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "demo.yaml"
    file.write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(SettingsError, match="is not UTF-8"):
        load_settings(file)


def test_a_yaml_tag_constructs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    told = faults(tmp_path, f"{GOOD}budget: !!python/object/apply:os.mkdir ['{marker}']\n")
    assert told
    assert not marker.exists()
