"""Settings made up by hypothesis, over the whole model and within its rules.

`settings_tables()` gives plain tables as a settings file would hold them; `loaded(table)` loads one as the tool does.
"""

from __future__ import annotations

import ipaddress
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from slipway.instances import INSTANCE_TYPES
from slipway.settings import Settings, load_settings

REGIONS = ("us-east-1", "us-west-2", "eu-north-1", "ap-northeast-1")
RETENTION = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1827, 3653)
HEAD_TYPES = tuple(name for name, one in INSTANCE_TYPES.items() if not one.gpus and one.memory_gib >= 32)
CPU_TYPES = tuple(name for name, one in INSTANCE_TYPES.items() if not one.gpus)
GPU_TYPES = tuple(name for name, one in INSTANCE_TYPES.items() if one.gpus)
MIB = 1 << 20

hexadecimal = st.text("0123456789abcdef", min_size=17, max_size=17).filter(
    lambda text: text.strip("0") not in ("", "1", "2")
)
names = st.from_regex(r"[a-z][a-z0-9-]{0,20}[a-z0-9]", fullmatch=True)
words = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,12}", fullmatch=True)
image_names = st.from_regex(r"[a-z0-9]{1,8}([._-][a-z0-9]{1,4})?", fullmatch=True)
parameter_names = st.from_regex(r"X[A-Za-z0-9]{1,12}", fullmatch=True)  # no parameter that a rule could know
values = st.one_of(st.integers(0, 10**6), st.from_regex(r"[A-Za-z0-9_./:=-][A-Za-z0-9_./:=,-]{0,20}", fullmatch=True))
hosts = st.from_regex(r"[a-z][a-z0-9.-]{0,12}[a-z0-9]", fullmatch=True)
free_text = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc",), exclude_characters="\u2028\u2029"), min_size=1, max_size=30
)
buckets = st.from_regex(r"[a-z0-9][a-z0-9-]{3,20}[a-z0-9]", fullmatch=True)


def ids(prefix: str) -> st.SearchStrategy[str]:
    return hexadecimal.map(lambda text: f"{prefix}-{text}")


def numbered(prefix: str, number: int) -> st.SearchStrategy[str]:
    """Ids that differ from those with another number."""
    return st.text("0123456789abcdef", min_size=16, max_size=16).map(lambda text: f"{prefix}-{number + 1:x}{text}")


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A table that has each of the fields or not."""
    return st.fixed_dictionaries({}, optional=fields)


def unique(items: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(items, max_size=most, unique_by=json.dumps)


policies = words.map(lambda name: f"arn:aws:iam::123456789012:policy/{name}") | words.map(
    lambda name: f"arn:aws:iam::aws:policy/{name}"
).filter(lambda arn: not arn.endswith("AmazonSSMManagedInstanceCore"))
scripts = st.fixed_dictionaries(
    {"url": st.tuples(buckets, words).map(lambda parts: f"s3://{parts[0]}/{parts[1]}.sh")},
    optional={"arguments": st.lists(st.from_regex(r"[A-Za-z0-9=_./:-]{1,12}", fullmatch=True), min_size=1, max_size=3)},
)


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        prefix = draw(st.integers(16, 20))
        address = int(ipaddress.IPv4Address("10.0.0.0")) + draw(st.integers(0, 255)) * 2**16
        return {"cidr": str(ipaddress.IPv4Network((address, prefix)))}
    table = {
        "vpc_id": draw(ids("vpc")),
        "head_node_subnet_id": draw(ids("subnet")),
        "compute_subnet_id": draw(ids("subnet")),
    }
    return {**table, **draw(optional(security_group_id=ids("sg")))}


@st.composite
def head_nodes(draw: st.DrawFn) -> dict[str, Any]:
    table = draw(
        optional(
            instance_type=st.sampled_from(HEAD_TYPES),
            root_volume_gib=st.integers(45, 2000),
            security_group_ids=unique(ids("sg"), 3),
            scripts=unique(scripts, 3),
            policy_arns=unique(policies, 3),
        )
    )
    if draw(st.booleans()):
        table["key_pair"] = draw(words)
        table |= draw(optional(ssh_from=st.sampled_from(("10.0.0.0/8", "192.0.2.0/24", "203.0.113.7/32"))))
    return table


@st.composite
def queues(draw: st.DrawFn, number: int) -> dict[str, Any]:
    kind = draw(st.sampled_from(GPU_TYPES + CPU_TYPES[:6]))
    instance = INSTANCE_TYPES[kind]
    table: dict[str, Any] = {"name": f"{draw(names)[:18]}{number}", "instance_type": kind}
    if instance.network_cards > 1 or (instance.efa_interfaces and draw(st.booleans())):
        table["efa"] = True
    kinds = ("capacity-block", "on-demand", None) if instance.capacity_block else ("on-demand", None)
    reservation = draw(st.sampled_from(kinds))
    if reservation == "capacity-block" or draw(st.booleans()):
        table["count"] = draw(st.integers(1, 16))
    else:
        table["max_count"] = draw(st.integers(1, 16))
        table |= draw(optional(min_count=st.integers(0, table["max_count"])))
    if reservation:
        table["reservation"] = {"kind": reservation, "id": draw(numbered("cr", number))}
    else:
        table |= draw(optional(spot=st.booleans(), placement_group=st.booleans() | words))
    slurm = st.dictionaries(parameter_names, values, max_size=3)
    return {
        **table,
        **draw(optional(scripts=unique(scripts, 2), policy_arns=unique(policies, 2), slurm_settings=slurm)),
    }


@st.composite
def file_systems(draw: st.DrawFn) -> dict[str, Any]:
    capacity = draw(st.just(1200) | st.integers(1, 20).map(lambda number: number * 2400))
    deployment = draw(st.sampled_from(("persistent-2", "persistent-1", "scratch-2")))
    steps = {"persistent-2": (125, 250, 500, 1000), "persistent-1": (50, 100, 200)}.get(deployment)
    table = {"deployment": deployment, "capacity_gib": capacity}
    if steps:
        table["throughput_mb_s_per_tib"] = draw(st.sampled_from(steps))
    return {**table, **draw(optional(compression=st.sampled_from(("lz4", "none"))))}


@st.composite
def mounts(draw: st.DrawFn) -> list[dict[str, Any]]:
    prefixes = {"fsx-lustre": "fs", "fsx-openzfs": "fsvol", "fsx-ontap": "fsvol", "file-cache": "fc", "efs": "fs"}
    table = []
    for number in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(sorted(prefixes)))
        table.append({"path": f"/{draw(names)}{number}", "kind": kind, "id": draw(numbered(prefixes[kind], number))})
    return table


@st.composite
def storages(draw: st.DrawFn) -> dict[str, Any]:
    table = draw(optional(fsx=file_systems(), bucket=buckets, mounts=mounts()))
    if table.get("fsx", {}).get("deployment", "persistent-2") == "persistent-2":
        table["associations"] = [
            {"path": f"/d{number}", "prefix": f"p{number}/", **draw(optional(import_changes=st.booleans(), export_changes=st.booleans()))}
            for number in range(draw(st.integers(0, 3)))
        ]  # fmt: skip
    if draw(st.booleans()):
        table["home"] = {"kind": "ebs", "size_gib": draw(st.integers(10, 2000))}
    return table


def slurms(region: str) -> st.SearchStrategy[dict[str, Any]]:
    secret = f"arn:aws:secretsmanager:{region}:123456789012:secret:slurm-AbCdEf"
    database = st.fixed_dictionaries(
        {"host": hosts, "user": st.just("slurm"), "password_secret_arn": st.just(secret)},
        optional={"port": st.integers(1, 65535), "name": st.just("accounting")},
    )
    daemon = st.fixed_dictionaries(
        {"host": hosts, "munge_key_secret_arn": st.just(secret)}, optional={"port": st.integers(1, 65535)}
    )
    accounting = (
        st.just({}) | database.map(lambda one: {"database": one}) | daemon.map(lambda one: {"external_slurmdbd": one})
    )
    rest = optional(idle_minutes=st.integers(1, 1440), settings=st.dictionaries(parameter_names, values, max_size=4))
    return st.tuples(accounting, rest).map(lambda parts: {**parts[0], **parts[1]})


@st.composite
def acceptances(draw: st.DrawFn, queue: dict[str, Any] | None) -> dict[str, Any]:
    """With limits of its own for the nodes that are there; off where there is nothing to judge."""
    static = queue and queue.get("count", queue.get("min_count", 0))
    table = draw(optional(iterations=st.integers(1, 100), timeout_minutes=st.integers(10, 50)))
    if not queue or not static or static * INSTANCE_TYPES[queue["instance_type"]].gpus < 2 or draw(st.booleans()):
        return {"scenario": "none", **table}
    least, steps = draw(st.sampled_from((MIB, 8 * MIB))), draw(st.integers(1, 10))
    limit = {
        "collective": "all_reduce",
        "nodes": static,
        "size": least * 2**steps,
        "fail_below_gb_per_s": draw(st.floats(0.0001, 100.0)),
        "source": draw(free_text),
        "date": draw(st.dates()).isoformat(),
    }
    return {"min_bytes": least, "max_bytes": least * 2**steps, "limits": [limit], **table}


@st.composite
def settings_tables(draw: st.DrawFn) -> dict[str, Any]:
    """A settings file's content."""
    region = draw(st.sampled_from(REGIONS))
    table = {"name": draw(names), "region": region, "zone": region + draw(st.sampled_from("abc"))}
    table |= draw(
        optional(
            os=st.sampled_from(("ubuntu2204", "ubuntu2404", "alinux2023")), network=networks(), head_node=head_nodes()
        )
    )
    table["queues"] = [draw(queues(number)) for number in range(draw(st.integers(1, 4)))]
    images = st.lists(image_names.map(lambda name: f"docker://nvcr.io#nvidia/{name}:24.01"), max_size=2, unique=True)
    secret = f"arn:aws:secretsmanager:{region}:123456789012:secret:ngc-AbCdEf"
    tags = st.dictionaries(
        st.from_regex(r"[A-Za-z0-9 _.:/=+@-]{1,10}", fullmatch=True),
        st.from_regex(r"[A-Za-z0-9 _.:/=+@-]{0,10}", fullmatch=True),
        max_size=3,
    )
    table |= draw(
        optional(storage=storages(), slurm=slurms(region), images=images, ngc_secret_arn=st.just(secret), tags=tags)
    )
    table["acceptance"] = draw(acceptances(_judged(table["queues"])))
    table["observability"] = {"alert_email": "a@example.com"} | draw(
        optional(prometheus=st.booleans(), grafana=st.booleans(), retention_days=st.sampled_from(RETENTION))
    )
    nccl = optional(source=st.sampled_from(("image", "shared")), environment=st.sampled_from(("recommended", "legacy")))
    budget = st.fixed_dictionaries({"monthly_usd": st.integers(1, 10**9)})
    return table | draw(optional(nccl=nccl, budget=budget, software_mirror=st.just("s3://a-mirror/slipway/")))


def _judged(table: list[dict[str, Any]]) -> dict[str, Any] | None:
    return next((queue for queue in table if INSTANCE_TYPES[queue["instance_type"]].gpus), None)


def loaded(table: dict[str, Any]) -> Settings:
    """The settings of a table, through a file as the tool reads them. Raises SettingsError."""
    with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
        file = Path(folder) / "settings.yaml"
        file.write_text(json.dumps(table), encoding="utf-8")
        return load_settings(file)
