"""A settings file with everything on and the longest names still gives policies that IAM takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipway import command_line
from slipway.aws.policy import MANAGED_POLICY_CHARACTERS, document, parts, size
from slipway.cli import app
from slipway.deploy_policy import deployer_policy, execution_policy
from slipway.preflight.iam import reading_policy
from slipway.settings import load_settings
from slipway.status.command import policy as status_policy
from slipway.teardown.policy import teardown_policy

EXAMPLE = Path(__file__).parents[2] / "clusters/p5-capacity-block.yaml"
BUCKET = "a-bucket-with-a-long-name-of-sixty-three-characters-for-scr"
EVERYTHING = (
    "name: a23456789-123456789-12345\nregion: ap-southeast-2\nzone: ap-southeast-2a\n"
    "iam: {permissions_boundary: 'arn:aws:iam::123456789012:policy/boundary-of-a-team', name_prefix: abcdefghi-}\n"
    "head_node:\n  policy_arns: [" + ", ".join(f"'arn:aws:iam::123456789012:policy/p{n}'" for n in range(8)) + "]\n"
    "  scripts:\n"
    + "".join(f"    - {{url: 's3://{BUCKET}-{n:02}/x.sh'}}\n" for n in range(8))
    + "queues:\n"
    + "".join(f"  - {{name: train-{n}, instance_type: p5.48xlarge, count: 2, efa: true}}\n" for n in range(20))
    + "storage:\n  home: {kind: ebs, size_gib: 500}\n  fsx: {deployment: persistent-2, capacity_gib: 4800, throughput_mb_s_per_tib: 250}\n"
    "  associations:\n"
    + "".join(f"    - {{path: /set-{n}, prefix: set-{n}/}}\n" for n in range(8))
    + "observability: {prometheus: true, grafana: true, alert_email: a@example.com}\n"
    "budget: {monthly_usd: 100000}\n"
)


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    file = tmp_path / "everything.yaml"
    file.write_text(EVERYTHING, encoding="utf-8")
    return file


def test_every_policy_or_each_of_its_parts_fits(everything: Path) -> None:
    settings = load_settings(everything)
    whole = execution_policy(settings)
    assert size(whole) > MANAGED_POLICY_CHARACTERS  # else this file does not try the limit
    made = parts(whole)
    assert [size(part) <= MANAGED_POLICY_CHARACTERS for part in made] == [True, True]
    assert document([statement for part in made for statement in part["Statement"]]) == whole
    for policy in (deployer_policy, reading_policy, status_policy, teardown_policy):
        assert size(policy(settings)) <= MANAGED_POLICY_CHARACTERS


def test_the_command_names_the_parts_and_prints_them(everything: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = execution_policy(load_settings(everything))
    asked = ["policy", "deploy", str(everything), "--execution"]
    assert command_line.run(app, asked) == 2
    out, err = capsys.readouterr()
    assert out == ""  # nothing that `aws iam create-policy` would refuse
    assert (
        f"the policy has {size(whole):,} characters and a managed policy takes 6,144: it is printed in 2 parts" in err
    )
    hint = (
        f"Hint: slipway policy deploy --execution {everything} --part 1, then --part 2; a role takes several policies"
    )
    assert f"{hint}, and cdk bootstrap --cloudformation-execution-policies takes their ARNs" in err
    printed = []
    for number in ("1", "2"):
        assert command_line.run(app, [*asked, "--part", number, "--json"]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed == parts(whole)
    assert command_line.run(app, [*asked, "--part", "3"]) == 2


def test_a_short_policy_is_one_part(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["policy", "deploy", str(EXAMPLE), "--execution", "--json"]
    assert command_line.run(app, asked) == 0
    whole = capsys.readouterr().out
    assert command_line.run(app, [*asked, "--part", "1"]) == 0
    assert capsys.readouterr().out == whole


@pytest.mark.parametrize(("buckets", "count"), [(35, 2), (90, 3)])
def test_preflights_policy_of_many_buckets_is_printed_in_parts(
    buckets: int, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With 90 buckets one statement is too long for a policy: it becomes several, each with a share of the resources."""
    scripts = "".join(f"    - {{url: 's3://{BUCKET}-{n:02}/x.sh'}}\n" for n in range(buckets))
    file = tmp_path / "many.yaml"
    file.write_text(EXAMPLE.read_text("utf-8").replace("head_node:\n", f"head_node:\n  scripts:\n{scripts}"), "utf-8")
    whole = reading_policy(load_settings(file))
    for asked in (["policy", "preflight", str(file)], ["preflight", str(file), "--policy"]):
        assert command_line.run(app, asked) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert f"in {count} parts. Hint: slipway policy preflight {file} --part 1, then --part 2" in err
    allowed = set()
    for number in range(1, count + 1):
        assert command_line.run(app, ["policy", "preflight", str(file), "--part", str(number), "--json"]) == 0
        printed = capsys.readouterr().out.strip()
        assert len(printed) <= MANAGED_POLICY_CHARACTERS
        statements = json.loads(printed)["Statement"]
        assert len({one["Sid"] for one in statements}) == len(statements)
        allowed |= {(action, arn) for one in statements for action in one["Action"] for arn in one["Resource"]}
    assert allowed == {
        (action, arn) for one in whole["Statement"] for action in one["Action"] for arn in one["Resource"]
    }
