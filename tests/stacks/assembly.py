"""Synthesise in this process, or as the CDK CLI does, and look into the templates."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import slipway.jsii_environment  # noqa: F401 (before aws_cdk, which starts Node when it is imported)

# isort: split
from aws_cdk import App
from ruamel.yaml import YAML

from app import make_stacks
from slipway.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {
    "rehearsal": ROOT / "clusters/rehearsal.yaml",
    "p5-capacity-block": ROOT / "clusters/p5-capacity-block.yaml",
    "every-part": ROOT / "tests/stacks/every-part.yaml",
    "site-parts": ROOT / "tests/stacks/site-parts.yaml",
}
SYNTH_TIMEOUT_S = 300
HASH = re.compile(r"[0-9a-f]{64}")


class Assembly:
    """The templates of one ``cdk.out``, by the part of the stack's name after the cluster's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.templates: dict[str, dict[str, Any]] = {
            file.name.removesuffix(".template.json").rpartition("-")[2]: json.loads(file.read_text(encoding="utf-8"))
            for file in sorted(directory.glob("*.template.json"))
        }

    def of_type(self, kind: str) -> list[dict[str, Any]]:
        """Every resource of one CloudFormation type, over all stacks."""
        return [resource for _, _, resource in self.resources() if resource["Type"] == kind]

    def resources(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Stack, logical id and resource of all stacks."""
        for stack, template in self.templates.items():
            for logical_id, resource in template.get("Resources", {}).items():
                yield stack, logical_id, resource

    def statements(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every statement of an identity policy, with ``stack/logical id``."""
        for stack, logical_id, resource in self.resources():
            if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
                for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                    yield f"{stack}/{logical_id}", statement

    def deployable(self) -> list[Path]:
        """The templates' files. Without those that have no resource: the CDK CLI deploys no such stack."""
        files = sorted(self.directory.glob("*.template.json"))
        return [file for file in files if "Resources" in json.loads(file.read_text(encoding="utf-8"))]

    def readable(self, stack: str) -> str:
        """The template as YAML, with the hashes of assets taken out: they change with every byte of a script.

        CDK sorts the resources of a statement by their text, hashes included: they are sorted again without.
        """
        yaml = YAML()
        yaml.width = 120
        text = io.StringIO()
        template = json.loads(HASH.sub("HASH", json.dumps(self.templates[stack])))
        for resource in template.get("Resources", {}).values():
            for statement in resource.get("Properties", {}).get("PolicyDocument", {}).get("Statement", []):
                if isinstance(statement["Resource"], list):
                    statement["Resource"].sort(key=json.dumps)
        yaml.dump(template, text)
        return text.getvalue()


class Assemblies(Mapping[str, Assembly]):
    """The assemblies of the examples by name; each is synthesised when a test asks for it first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Assembly] = {}

    def __getitem__(self, name: str) -> Assembly:
        if name not in self._made:
            self._made[name] = synthesised(load_settings(EXAMPLES[name]), self._directory / name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(EXAMPLES)

    def __len__(self) -> int:
        return len(EXAMPLES)


def synthesised(settings: Settings, out: Path) -> Assembly:
    """Make the stacks in this process, where the start of Node and of CDK's library is paid once."""
    app = App(outdir=str(out), context=_flags(), analytics_reporting=False)
    make_stacks(app, settings)
    app.synth()
    return Assembly(out)


def synthesise(settings: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Run app.py as the CDK CLI does: no credentials, no home, and no network where that can be taken away."""
    command = [sys.executable, str(ROOT / "app.py")]
    if os.geteuid() == 0 and shutil.which("unshare"):
        command = ["unshare", "--net", *command]
    environment = {
        "PATH": os.environ["PATH"],
        "CDK_OUTDIR": str(out),
        "CDK_VALIDATION": os.environ["CDK_VALIDATION"],
        "CDK_CONTEXT_JSON": context(settings),
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "20",
    }
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SYNTH_TIMEOUT_S, check=False
    )


def context(settings: Path) -> str:
    """What the CDK CLI hands over: cdk.json's context and ``-c settings=...``."""
    return json.dumps({**_flags(), "settings": str(settings)})


def _flags() -> dict[str, Any]:
    flags: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    return flags
