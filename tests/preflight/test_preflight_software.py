"""Scripts and the mirror in S3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from arrange_services import bucket
from preflight_cases import REGION, Case, all_of, check, denied, settings_of

from slipway.preflight.model import Answer, Status
from slipway.preflight.software import pinned_files
from tests.aws.preflight_aws import PreflightAws

OK, WARNING, FAULT = Status.OK, Status.WARNING, Status.FAULT
SCRIPT = "s3://corp-scripts/setup.sh"
HEAD: dict[str, Any] = {"head_node": {"scripts": [{"url": SCRIPT}]}}
QUEUE: dict[str, Any] = {
    "queues": [{"name": "dev", "instance_type": "g6.48xlarge", "count": 1, "scripts": [{"url": SCRIPT}]}]
}
URL = "s3://corp-mirror/software"
MIRROR: dict[str, Any] = {"software_mirror": f"{URL}/"}
SHARED: dict[str, Any] = {
    **MIRROR,
    "nccl": {"source": "shared", "nccl_version": "v2.28.7-1", "ofi_version": "v1.17.2-aws"},
}
FILES = pinned_files(settings_of({}))
SHARED_FILES = pinned_files(settings_of(SHARED))
PROMETHEUS = "prometheus-3.5.0.linux-amd64.tar.gz"
SUM_HINT = f"in the folder that is mirrored: sha256sum * > SHA256SUMS, then aws s3 cp SHA256SUMS {URL}/"


def put(name: str, key: str, text: str) -> Callable[[PreflightAws], object]:
    return lambda aws: aws.clients("s3").put_object(Bucket=name, Key=key, Body=text.encode())


def sums(files: dict[str, str]) -> str:
    return "".join(f"{sha256 or '0' * 64} *./{file}\n" for file, sha256 in files.items())


def mirror(
    files: dict[str, str] = FILES, without: str = "", lines: str | None = None
) -> Callable[[PreflightAws], None]:
    """A mirror with these files and sums."""
    there = [put("corp-mirror", f"software/{file}", "archive") for file in files if file != without]
    text = sums(files) if lines is None else lines
    return all_of(bucket("corp-mirror"), *there, put("corp-mirror", "software/SHA256SUMS", text))


def without_sums(aws: PreflightAws) -> None:
    mirror()(aws)
    aws.clients("s3").delete_object(Bucket="corp-mirror", Key="software/SHA256SUMS")


def software(name: str, status: Status, text: str, **more: Any) -> Case:
    return Case("software-mirror", name, status, text, ("software_mirror",), **{"settings": MIRROR, **more})


THERE = all_of(bucket("corp-scripts"), put("corp-scripts", "setup.sh", "#!/bin/bash\n"))
HEAD_PATH = ("head_node", "scripts", 0, "url")
CASES = [
    Case("scripts", "there", OK, f"{SCRIPT} is there", HEAD_PATH, settings=HEAD, arrange=THERE),
    Case("scripts", "of a queue", OK, f"{SCRIPT} is there", ("queues", 0, "scripts", 0, "url"), settings=QUEUE,
         arrange=THERE),
    Case("scripts", "no object", FAULT, f"there is no {SCRIPT}", HEAD_PATH, f"upload it: aws s3 cp SCRIPT {SCRIPT}",
         settings=HEAD, arrange=bucket("corp-scripts")),
    Case("scripts", "no bucket", FAULT, f"there is no {SCRIPT}", HEAD_PATH, settings=HEAD),
    Case("scripts", "empty", FAULT, f"{SCRIPT} is empty", HEAD_PATH, settings=HEAD,
         arrange=all_of(bucket("corp-scripts"), put("corp-scripts", "setup.sh", ""))),
    Case("scripts", "elsewhere", WARNING, f"{SCRIPT} is in eu-west-1, the cluster in {REGION}", HEAD_PATH,
         settings=HEAD, arrange=all_of(bucket("corp-scripts", "eu-west-1"), put("corp-scripts", "setup.sh", "#!"))),
    denied("s3:HeadObject", "scripts", "s3:GetObject", settings=HEAD, arrange=THERE),
    denied("s3:HeadBucket", "scripts", "s3:ListBucket", settings=HEAD, arrange=THERE),
    software("whole", OK, f"{URL}/SHA256SUMS has all {len(FILES)} files", arrange=mirror()),
    software("with NCCL", OK, f"{URL}/SHA256SUMS has all {len(SHARED_FILES)} files", settings=SHARED,
             arrange=mirror(SHARED_FILES)),
    software("without NCCL", FAULT, f"there is no {URL}/nccl-2.28.7-1.tar.gz", settings=SHARED,
             arrange=mirror(SHARED_FILES, without="nccl-2.28.7-1.tar.gz")),
    software("no sums", FAULT, f"there is no {URL}/SHA256SUMS", hint=SUM_HINT, arrange=without_sums),
    software("no line", FAULT, f"{URL}/SHA256SUMS has no line of {PROMETHEUS}", hint=SUM_HINT,
             arrange=mirror(lines=sums({file: sha for file, sha in FILES.items() if file != PROMETHEUS}))),
    software("another sum", WARNING, f"{URL}/SHA256SUMS has another sum for {PROMETHEUS} than nodes/software.tsv",
             arrange=mirror(lines=sums({**FILES, PROMETHEUS: "f" * 64}))),
    software("no file", FAULT, f"there is no {URL}/{PROMETHEUS}",
             hint="upload the release that nodes/software.tsv names", arrange=mirror(without=PROMETHEUS)),
    denied("s3:GetObject", "software-mirror", settings=MIRROR, arrange=mirror()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_software(case: Case, ask: Callable[[Case], tuple[Answer, ...]]) -> None:
    check(case, ask(case))


def test_files_of_the_mirror() -> None:
    assert PROMETHEUS in FILES
    # For acceptance, with the plugin of the image.
    assert {file for file in FILES if "nccl" in file} == {"nccl-2.28.7-1.tar.gz", "nccl-tests-2.17.6.tar.gz"}
    assert not [file for file in pinned_files(settings_of({"acceptance": {"scenario": "none"}})) if "nccl" in file]
    assert {"nccl-2.28.7-1.tar.gz", "aws-ofi-nccl-1.17.2.tar.gz", "nccl-tests-2.17.6.tar.gz"} <= set(SHARED_FILES)
    assert SHARED_FILES["nccl-2.28.7-1.tar.gz"].startswith("1d2d1dd53e6c")  # one of several pinned versions
    assert SHARED_FILES["aws-ofi-nccl-1.17.2.tar.gz"].startswith("6676f49cdfba")
    other = pinned_files(settings_of({"nccl": {"source": "shared", "nccl_version": "v2.28.3-1"}}))
    assert other["nccl-2.28.3-1.tar.gz"] == ""  # software.tsv pins other versions
