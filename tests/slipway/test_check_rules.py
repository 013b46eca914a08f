"""Every rule has a file that breaks it, whose messages are exactly those it names; every row says what it must."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from slipway.errors import Fault, SettingsError, order
from slipway.regions import regions
from slipway.settings import Examination, Settings, examine, load_settings
from slipway.settings.bad_files import FOLDER as BAD
from slipway.settings.bad_files import MADE, bad_file, message_of
from slipway.settings.check import REASONS, REASONS_BY_NAME
from slipway.settings.forms import FORMS
from slipway.settings.model import (
    Association,
    Budget,
    Database,
    Limit,
    Mount,
    Script,
    Slurmdbd,
    all_keys,
    example_of,
)
from slipway.settings.rules import RULES, rule_faults, slurm
from slipway.settings.rules import slurm as rules_slurm
from slipway.settings.rules import storage as rules_storage
from slipway.settings.rules.place import MAX_TAGS
from slipway.settings.rules.rule import Rule
from slipway.settings.rules.software import NODE_TIMEOUT_S
from slipway.settings.source import HIDDEN, Reason, read_source

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted(BAD.glob("*.yaml"))
EXAMPLES = sorted((REPOSITORY / "clusters").glob("*.yaml"))
EXPECTED = re.compile(
    r"^# expect: (?P<line>\d+):(?P<column>\d+): (?P<severity>fault|warning): (?P<message>.*) \[(?P<rule>[a-z0-9-]+)\]$"
)


def told(found: Examination) -> list[Fault]:
    return sorted((*found.faults, *found.warnings), key=order)


def expected(file: Path) -> list[tuple[int, int, str, str, str]]:
    """What a bad file says about itself, at its end or, where that would change the fault, in a text next to it."""
    beside = file.with_suffix(".txt")
    lines = (beside if beside.is_file() else file).read_text(encoding="utf-8").splitlines()
    rows = [EXPECTED.match(line) for line in lines if line.startswith("# expect: ")]
    return [(int(row["line"]), int(row["column"]), row["severity"], row["message"], row["rule"]) for row in rows if row]


def _written(file: Path, text: str) -> Path:
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_file_gives_exactly_what_it_names(file: Path) -> None:
    found = [
        (fault.line, fault.column, fault.severity, fault.message, fault.rule_name) for fault in told(examine(file))
    ]
    assert found == expected(file)
    assert file.stem in {row[4] for row in found}


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.name)
def test_the_bad_file_of_a_rule_breaks_it(reason: Reason, tmp_path: Path) -> None:
    faults = [fault for fault in told(examine(bad_file(reason.name, tmp_path))) if fault.rule_name == reason.name]
    assert faults[0].message == message_of(reason.name)
    assert faults[0].severity == (reason.severity if isinstance(reason, Rule) else "fault")


def test_no_bad_file_without_a_rule() -> None:
    assert {file.stem for file in FILES} == set(REASONS_BY_NAME) - set(MADE)
    assert {file.stem for file in BAD.glob("*.txt")} <= {file.stem for file in FILES}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_no_example_gives_a_fault_or_a_warning(file: Path) -> None:
    assert told(examine(file)) == []


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.name)
def test_a_row_is_complete(reason: Reason) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", reason.name)
    assert reason.why.endswith(".")
    assert reason.source
    if isinstance(reason, Rule):
        assert set(reason.keys) <= {key.path.replace("[]", "") for key in all_keys()}
    assert len(REASONS_BY_NAME) == len(REASONS)


def test_a_warning_alone_leaves_the_settings() -> None:
    found = examine(BAD / "image-slash.yaml")
    assert (found.settings is not None, len(found.faults), len(found.warnings)) == (True, 0, 1)
    assert isinstance(load_settings(BAD / "image-slash.yaml"), Settings)


def test_the_text_ends_with_the_name_and_the_dictionary_has_both() -> None:
    fault = examine(BAD / "image-slash.yaml").warnings[0]
    assert str(fault).endswith(" [image-slash]")
    assert ": warning: " in str(fault)
    assert (fault.as_dict()["rule_name"], fault.as_dict()["severity"]) == ("image-slash", "warning")


# --- what a wrong value hides, and what it does not


class _Recording:
    """Settings that note which keys are read: ``queues.name``."""

    def __init__(self, real: Any, path: str, seen: set[str]) -> None:
        self.__dict__.update(_real=real, _path=path, _seen=seen)

    def __getattr__(self, name: str) -> Any:
        own = getattr(type(self._real), name, None)
        if isinstance(own, property):
            return own.fget(self)  # type: ignore[misc]
        value = getattr(self._real, name)
        if name not in type(self._real).model_fields:
            return value
        return _recorded(value, f"{self._path}.{name}".lstrip("."), self._seen)


def _recorded(value: Any, path: str, seen: set[str]) -> Any:
    if isinstance(value, BaseModel):
        return _Recording(value, path, seen)
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return tuple(_Recording(item, path, seen) for item in value)
    seen.add(path)
    return value


def _settings_of_many_kinds() -> Iterator[Settings]:
    for file in (*EXAMPLES, *FILES):
        try:
            yield Settings.model_validate(read_source(file).data)
        except (ValueError, SettingsError):
            continue


def test_the_keys_of_a_rule_are_all_that_it_reads() -> None:
    """Otherwise a finding would be reported that only follows from a wrong value."""
    cases = list(_settings_of_many_kinds())
    assert len(cases) > 60
    for rule in RULES:
        seen: set[str] = set()
        for settings in cases:
            list(rule.find(_Recording(settings, "", seen)))  # type: ignore[arg-type]
        beyond = [
            path
            for path in seen
            if not any(f"{path}.".startswith(f"{key}.") or key.startswith(f"{path}.") for key in rule.keys)
        ]
        assert beyond == [], rule.name


GOOD = """\
name: demo
region: us-east-1
zone: us-east-1a
queues:
  - name: train
    instance_type: p5.48xlarge
    count: 4
    reservation: {kind: capacity-block, id: cr-0123456789abcdef0}
    efa: true
"""


def rules_broken(tmp_path: Path, text: str) -> list[str]:
    return [fault.rule_name for fault in told(examine(_written(tmp_path / "demo.yaml", text)))]


@pytest.mark.parametrize(
    ("change", "rules"),
    [
        # Wrong counts hide what follows from counts, and nothing else of the queue.
        (("    count: 4", "    count: 4\n    max_count: 5\n    spot: true"), ["count-both", "spot-reservation"]),
        (("    count: 4", '    count: "4"\n    placement_group: true'), ["wrong-type", "capacity-block-placement"]),
        (("    count: 4\n", "    spot: true\n"), ["count-missing", "spot-reservation"]),
        # A misspelled key counts as wrong, not as left out.
        (("efa: true", "eaf: true"), ["unknown-key"]),
        (("count: 4", "cuont: 4"), ["unknown-key"]),
        (("instance_type: p5.48xlarge", "instance_typ: p5.48xlarge"), ["missing-key", "unknown-key"]),
        (("instance_type: p5.48xlarge", "instance_type: p5.4xlage"), ["instance-type-unknown"]),
        (("{kind: capacity-block, id: cr-0123456789abcdef0}", "{kind: block, id: cr-1}"), ["not-a-choice", "reservation-id"]),
        # A queue that is no table hides nothing of the other tables.
        (("queues:\n", "head_node: {instance_type: c5.large}\nqueues:\n  - 5\n"), ["head-node-memory", "wrong-type"]),
        (("region: us-east-1\n", ""), ["missing-key"]),
        (("name: demo", "name: [demo]\nzone: us-east-1b"), ["cluster-name", "yaml-key-twice"]),
    ],
    ids=lambda value: value[1].strip()[:40] if isinstance(value, tuple) else None,
)  # fmt: skip
def test_a_wrong_value_hides_only_what_depends_on_it(tmp_path: Path, change: tuple[str, str], rules: list[str]) -> None:
    assert change[0] in GOOD
    assert sorted(rules_broken(tmp_path, GOOD.replace(*change))) == sorted(rules)


def test_one_queue_does_not_hide_the_faults_of_another(tmp_path: Path) -> None:
    second = "  - {name: more, instance_type: p5.48xlage, count: 1}\n  - {name: default, instance_type: c5.large, efa: true, max_count: 1}\n"
    assert rules_broken(tmp_path, GOOD + second) == ["instance-type-unknown", "queue-name-default", "efa-missing"]


def test_an_example_of_every_form_is_valid_and_no_other_rule_is_told_about_it() -> None:
    data = {
        **example_of(Settings),
        "storage": {"associations": example_of(tuple[Association]), "mounts": example_of(tuple[Mount])},
        "head_node": {"scripts": example_of(tuple[Script])},
        "acceptance": {"limits": example_of(tuple[Limit])},
        "slurm": {"database": example_of(Database), "external_slurmdbd": example_of(Slurmdbd)},
        "budget": example_of(Budget),
    }
    settings = Settings.model_validate(data)
    assert rule_faults(settings, read_source(EXAMPLES[0]), [()]) == []  # everything is wrong: nothing is reported
    for form in FORMS:
        assert form(form.example) is not None, form.name


# --- secrets

SECRET = "nvapi-" + "Ab3-" * 16


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD}ngc_secret_arn: {SECRET}\n",
        f"{GOOD}images: [{SECRET}]\n",
        f"{GOOD}tags: {{{SECRET}: x}}\n",
        f"{GOOD}ngc_key: {SECRET}\n",
        f"{GOOD}{SECRET}: 1\n",
        f"{GOOD}# the key is {SECRET}\n",
        GOOD.replace("name: demo", f"name: {SECRET}"),
        f"{GOOD}observability: [{SECRET}, {SECRET}]\n",
        f"{GOOD}slurm: {{database: {{host: {SECRET}, user: x, password: {SECRET}}}}}\n",
    ],
)
def test_a_secret_is_a_fault_and_is_never_repeated(tmp_path: Path, text: str) -> None:
    faults = told(examine(_written(tmp_path / "demo.yaml", text)))
    assert "secret-value" in {fault.rule_name for fault in faults}
    for fault in faults:
        assert SECRET[:10] not in str(fault)
        assert SECRET[:10] not in str(fault.as_dict())


@pytest.mark.parametrize("key", ["ngc_secret_arn", "ngc_api_key", "password"])
def test_the_value_of_a_key_for_secrets_is_not_repeated(tmp_path: Path, key: str) -> None:
    (fault,) = told(examine(_written(tmp_path / "demo.yaml", f"{GOOD}{key}: hunter2\n")))
    assert fault.value == HIDDEN
    assert "hunter2" not in str(fault)


# --- numbers that are elsewhere too


PCLUSTER = REPOSITORY / ".venv-pcluster/bin/python"


@pytest.mark.skipif(not PCLUSTER.is_file(), reason="needs .venv-pcluster: make setup-cloud")
def test_the_limits_are_those_of_the_pinned_parallelcluster() -> None:
    code = (
        "import inspect, json, re; from pcluster import constants as c; from pcluster.validators import cluster_validators as v, "
        "slurm_settings_validator as s; mount = inspect.getsource(v.SharedStorageMountDirValidator._validate); "
        "deny = s.SLURM_SETTINGS_DENY_LIST; regions = open(c.__file__.replace('constants.py', 'resources/supported-regions')); "
        "print(json.dumps([deny['SlurmConf']['Global'], deny['SlurmConf']['Accounting'], deny['Queue']['Global'], "
        "re.findall(r'\"(/[a-z0-9_/]+)\",', mount), regions.read().split(), c.FSX_SSD_THROUGHPUT, c.MAX_EXISTING_STORAGE_COUNT, "
        "c.MAX_TAGS_COUNT, c.NODE_BOOTSTRAP_TIMEOUT, c.EBS_VOLUME_TYPE_IOPS_DEFAULT['gp3']]))"
    )
    done = subprocess.run([str(PCLUSTER), "-c", code], capture_output=True, text=True, timeout=60, check=True)
    denied, accounting, queue, reserved, listed, throughput, storage, tags, timeout, iops = json.loads(done.stdout)
    assert (set(denied), set(accounting), set(queue)) == (slurm.DENIED, slurm.DENIED_ACCOUNTING, slurm.DENIED_QUEUE)
    assert set(reserved) == set(rules_storage.RESERVED)
    assert set(listed) == {name for name, facts in regions().items() if facts["listed"]}
    ours = rules_storage.THROUGHPUT_MB_S_PER_TIB
    assert throughput == {name.upper().replace("-", "_"): list(steps) for name, steps in ours.items()}
    assert (storage["efs"], storage["fsx"]) == (rules_storage.MAX_EFS, rules_storage.MAX_FSX_MOUNTS + 1)
    assert (tags, timeout, iops) == (MAX_TAGS, NODE_TIMEOUT_S, rules_storage.GP3_IOPS)


@pytest.mark.parametrize("word", ["Prolog", "Epilog"])
def test_refused_prolog_and_epilog_name_the_place_for_a_sites_own(word: str) -> None:
    """ParallelCluster user guide: Slurm prolog and epilog."""
    ((*_, hint),) = rules_slurm._denied({word: "/x"}, rules_slurm.DENIED, ("slurm", "settings"), "ParallelCluster")
    assert f"/opt/slurm/etc/scripts/{word.lower()}.d" in hint
