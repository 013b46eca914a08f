"""ParallelCluster's own validators, run on a cluster configuration against the embedded AWS.

The real program (`pcluster create-cluster --dryrun true`) in its own environment, as a process: it cannot share an
interpreter with the CDK. Its answer is sorted into schema errors, validators' errors, warnings, and failures that
say nothing about the configuration (program missing, endpoint not answering, time-out).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rehearsal.cloud.clients import OWN_CREDENTIALS
from rehearsal.cloud_errors import CloudError

DEFAULT_TIMEOUT_S = 60.0
#: The program `pcluster` without looking for garbage: 16 % less CPU time in one pair of runs (2026-11-29).
START = (
    "import atexit, gc, sys; gc.disable(); atexit.register(gc.freeze); "
    "from pcluster.cli.entrypoint import main; sys.exit(main())"
)
#: For what pcluster refuses before any validator runs: AWS does not know something that the configuration names.
REFUSED = "Configuration"


class PclusterUnavailable(CloudError):
    """pcluster could not judge: missing, timed out, or it met a fault of the environment."""


@dataclass(frozen=True)
class ValidationMessage:
    """What one validator said. `level` is ERROR or WARNING; `type` names the validator; `id` the part, if named."""

    level: str
    type: str
    message: str
    id: str = ""


def validate(
    cluster_configuration: Mapping[str, Any],
    name: str,
    region: str,
    endpoint: str,
    pcluster_bin: Path,
    run_dir: Path,
    suppressed: Sequence[str] = (),
    timeout_s: float = DEFAULT_TIMEOUT_S,
    credentials: Mapping[str, str] = OWN_CREDENTIALS,
) -> list[ValidationMessage]:
    """Every message of pcluster's validators; empty when it accepts the configuration without a word.

    `endpoint` must be an address (http://127.0.0.1:PORT), not a name. `suppressed` holds validators' types that are not
    run; `credentials` are those of the provider's role. Raises PclusterUnavailable when pcluster cannot judge within
    `timeout_s` seconds.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / f"{name}.yaml"
    path.write_text(yaml.safe_dump(dict(cluster_configuration), sort_keys=False), encoding="utf-8")
    command = [str(pcluster_bin.with_name("python")), "-c", START, "create-cluster", "--cluster-name", name]
    command += ["--cluster-configuration", str(path), "--region", region, "--dryrun", "true"]
    if suppressed:
        command += ["--suppress-validators", *(f"type:{item}" for item in suppressed)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=_environment(region, endpoint, run_dir, credentials),
            check=False,
        )
    except FileNotFoundError:
        raise PclusterUnavailable(f"{pcluster_bin}: no such program. Run `make setup-pcluster` first.") from None
    except subprocess.TimeoutExpired:
        raise PclusterUnavailable(f"{pcluster_bin}: no answer within {timeout_s:.0f} s; log: {run_dir}") from None
    return _messages(done.stdout, done.stderr)


def _environment(region: str, endpoint: str, run_dir: Path, credentials: Mapping[str, str]) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": str(run_dir),
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        **credentials,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1,localhost",
    }


def _messages(stdout: str, stderr: str) -> list[ValidationMessage]:
    try:
        answer = json.loads(stdout)
    except ValueError:
        words = (stderr.strip() or stdout.strip() or "it said nothing")[-500:]
        raise PclusterUnavailable(f"pcluster gave no answer that can be read: {words}") from None
    found = [
        ValidationMessage(
            str(item.get("level", "ERROR")),
            str(item.get("type", "")),
            str(item.get("message", "")),
            str(item.get("id", "")),
        )
        for key in ("configurationValidationErrors", "validationMessages")
        for item in answer.get(key, [])
    ]
    message = str(answer.get("message", ""))
    if found or _accepted(message):
        return found
    if re.search(r"configuration|cluster name", message, re.IGNORECASE):
        return [ValidationMessage("ERROR", REFUSED, message)]
    raise PclusterUnavailable(f"pcluster could not judge the configuration: {message or stdout.strip()[:500]}")


def _accepted(message: str) -> bool:
    return "would have succeeded" in message
