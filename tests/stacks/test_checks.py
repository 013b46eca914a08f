"""The templates before other people's rules: cdk-nag and CDK's own validator at synth, and cfn-lint."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stacks.assembly import EXAMPLES, Assembly, synthesise

CFN_LINT = Path(sys.executable).with_name("cfn-lint")
CFN_LINT_RULES = Path(__file__).with_name("cfn-lint.yaml")


@pytest.mark.slow
@pytest.mark.parametrize("example", ["rehearsal", "every-part", "site-parts"])
def test_cdk_nag_and_the_validator_find_nothing_unanswered(example: str, tmp_path: Path) -> None:
    done = synthesise(EXAMPLES[example], tmp_path, validate=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AwsSolutions" not in done.stdout + done.stderr


def test_checks_are_really_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would also pass if add_checks added nothing."""
    from aws_cdk import App, Stack
    from aws_cdk import aws_s3 as s3

    from stacks.checks import add_checks

    monkeypatch.setenv("CDK_VALIDATION", "true")
    app = App(outdir=str(tmp_path))
    s3.Bucket(Stack(app, "Open"), "Bucket")
    add_checks(app)
    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()


@pytest.mark.slow
@pytest.mark.skipif(not CFN_LINT.exists(), reason="needs cfn-lint in the environment of the tests (make setup-test)")
def test_cfn_lint(assemblies: dict[str, Assembly]) -> None:
    templates = [str(file) for assembly in assemblies.values() for file in assembly.deployable()]
    done = subprocess.run(
        [str(CFN_LINT), "--config-file", str(CFN_LINT_RULES), "-t", *templates],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
