"""The account that a rehearsal makes for an example is a healthy one: preflight finds nothing to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.engine.account import seed_of
from slipway.preflight.command import preflight
from slipway.settings import load_settings
from tests.aws.preflight_aws import PreflightAws

ROOT = Path(__file__).parents[2]
# A database of the site's own, which AWS cannot be asked about, is the only warning.
UNKNOWN_DATABASE = "db.example.com is not RDS's: whether the head node reaches it on TCP 3306, AWS cannot say"
EXAMPLES = [*sorted((ROOT / "clusters").glob("*.yaml")), ROOT / "tests/stacks/site-parts.yaml"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_rehearsals_account_is_good_for_every_example(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load_settings(example)
    with PreflightAws(settings.region, tmp_path / "aws") as running:
        running.seed(seed_of(settings))
        for name, value in {**running.env(), "AWS_ENDPOINT_URL": running.address_endpoint}.items():
            monkeypatch.setenv(name, value)
        code = preflight(example)
        problems = running.tracebacks()
    told = capsys.readouterr()
    assert code == 0, told.err
    warnings = "1 warning" if settings.slurm.database else "0 warnings"
    assert f" {warnings}, 0 faults, 0 could not be asked in " in told.out, told.out
    assert (UNKNOWN_DATABASE in " ".join(told.out.split())) == bool(settings.slurm.database)
    assert problems == []
