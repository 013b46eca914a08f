"""The templates before other people's rules: cdk-nag and CDK's own validator at synth, and cfn-lint."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stacks.assembly import ROOT, Assemblies

CFN_LINT = Path(sys.executable).with_name("cfn-lint")
CFN_LINT_RULES = Path(__file__).with_name("cfn-lint.yaml")
VALIDATED = ("rehearsal", "every-part", "site-parts")
VALIDATE = f"""
import sys
from pathlib import Path
from tests.stacks.assembly import EXAMPLES, synthesised
from slipway.settings import load_settings
for name in {VALIDATED}:
    synthesised(load_settings(EXAMPLES[name]), Path(sys.argv[1], name))
    print(name, "is good", flush=True)

from aws_cdk import App, Stack, aws_s3
from stacks.checks import add_checks
app = App(outdir=str(Path(sys.argv[1], "open")))
aws_s3.Bucket(Stack(app, "Open"), "Bucket")
add_checks(app)
try:
    app.synth()
except RuntimeError as error:
    print("open:", error)
"""


@pytest.mark.slow
def test_cdk_nag_and_the_validator_find_nothing_unanswered(tmp_path: Path) -> None:
    """One process for all examples: the validator's start takes nine of ten seconds. A bad stack shows that it is on."""
    done = subprocess.run(
        [sys.executable, "-c", VALIDATE, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "CDK_VALIDATION": "true"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    good, _, bad = done.stdout.partition("open:")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in good.splitlines() if line.endswith(" is good")] == [
        f"{name} is good" for name in VALIDATED
    ]
    assert "AwsSolutions" not in good
    assert "ValidationFailed" in bad
    assert "AwsSolutions" in done.stdout.partition("site-parts is good")[2] + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not CFN_LINT.exists(), reason="needs cfn-lint in the environment of the tests (make setup-test)")
def test_cfn_lint(assemblies: Assemblies) -> None:
    templates = [str(file) for assembly in assemblies.values() for file in assembly.deployable()]
    done = subprocess.run(
        [str(CFN_LINT), "--config-file", str(CFN_LINT_RULES), "-t", *templates],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
