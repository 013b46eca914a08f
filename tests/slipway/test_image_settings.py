"""What the settings take for an image, and what the importer on the head node makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from headnode.containers import images
from slipway.settings import examine
from slipway.settings.forms import ImageUri

URI = TypeAdapter(ImageUri)
DIGEST = "sha256:" + "a" * 64
PARTS = st.sampled_from(
    ["a", "b1", "nvcr.io", "localhost", "5000", "/", "#", ":", ".", "-", "_", "..", f"@{DIGEST}", "A"]
)
SETTINGS = """\
name: demo
region: us-east-1
zone: us-east-1a
queues: [{name: train, instance_type: p5.48xlarge, count: 4, efa: true}]
images: ["%s", "%s"]
"""


@given(st.lists(PARTS, min_size=1, max_size=9).map("".join))
def test_what_the_settings_take_is_never_left_out_by_the_import(rest: str) -> None:
    uri = f"docker://{rest}"
    try:
        URI.validate_python(uri)
    except ValidationError:
        return
    assert images.parse(uri).line == uri


@pytest.mark.parametrize(
    "uri",
    [
        "docker://nvcr.io#nvidia/pytorch:24.01-py3",
        "docker://nvcr.io/nvidia/pytorch:24.01-py3",
        "docker://ubuntu",
        "docker://pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime",
        "docker://localhost:5000/a/b:1",
        "docker://localhost:5000#a/b:1",
        f"docker://123456789012.dkr.ecr.us-east-1.amazonaws.com#train@{DIGEST}",
        f"docker://nvcr.io#a/b__c:1@{DIGEST}",
    ],
)
def test_images_of_every_form_are_taken(uri: str) -> None:
    assert URI.validate_python(uri) == uri


@pytest.mark.parametrize(
    "uri",
    ["docker://../x", "docker://a/../b:1", "docker://nvcr.io#/x", "docker://-x/y", "docker://x:-1", "docker://a\n"],
)
def test_what_the_import_would_leave_out_is_a_fault_at_once(uri: str) -> None:
    with pytest.raises(ValidationError):
        URI.validate_python(uri)


@pytest.mark.parametrize(
    ("one", "other", "is_told"),
    [
        ("docker://nvcr.io#nvidia/jax:1", "docker://nvcr.io/nvidia/jax:1", True),
        ("docker://team/a_b:1", "docker://team/a/b:1", True),
        ("docker://team/a:1-2", "docker://team/a-1:2", True),
        ("docker://team/a:1", "docker://team/a:2", False),
    ],
)
def test_two_images_of_one_file_are_told(tmp_path: Path, one: str, other: str, is_told: bool) -> None:
    """The rule's file names are the importer's."""
    assert (images.parse(one).stem == images.parse(other).stem) is is_told
    file = tmp_path / "demo.yaml"
    file.write_text(SETTINGS % (one, other), encoding="utf-8")
    assert ("image-twice" in {fault.rule_name for fault in examine(file).faults}) is is_told
