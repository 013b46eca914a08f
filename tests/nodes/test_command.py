"""What the nodes' programs quote of a command that failed."""

from __future__ import annotations

import subprocess

import pytest

from nodes.lib.command import reason

CALL = "An error occurred (502) when calling the DescribeInstances operation (reached max retries: 2): "
PAGE = (
    "<!DOCTYPE html>\n<html>\n<head><title>Bad Gateway</title>\n</head>\n<body><h1>502 Bad Gateway</h1>\n"
    "<p>proxy.example.com</p></body>\n</html>\n"
)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("\nUnable to locate credentials\n", "Unable to locate credentials"),
        ("warning: old\nerror: full\n", "error: full"),
        (f"\n{CALL}{PAGE}", f"{CALL}502 Bad Gateway proxy.example.com"),
    ],
)
def test_the_last_line_is_quoted_and_a_page_is_its_words(text: str, quoted: str) -> None:
    assert reason(subprocess.CalledProcessError(254, "aws", stderr=text)) == quoted
