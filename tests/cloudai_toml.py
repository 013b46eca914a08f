"""Tests of a scenario of CloudAI as TOML, which several tests write, and the srun that runs them."""

from __future__ import annotations

SRUN = """#!/bin/bash
arguments=()
for argument in "$@"; do
  [[ $argument == --container-* || $argument == --no-container-* ]] || arguments+=("$argument")
done
exec /usr/bin/srun "${arguments[@]}"
"""
"""Stands in for srun with pyxis: the program runs on the node."""
_TEST = """
[[Tests]]
id = "{id}"
name = "{id}"
description = "d"
test_template_name = "{template}"
cmd_args = {{{arguments}}}
{more}
"""


def inline(name: str, template: str, arguments: str, more: str = "") -> str:
    """Return a test within a scenario. arguments: of its table cmd_args; more: further lines of the test."""
    return _TEST.format(id=name, template=template, arguments=arguments, more=more)


def bash(name: str, cmd: str = "hostname", more: str = "") -> str:
    """Return a BashCmd within a scenario."""
    return inline(name, "BashCmd", f"cmd = '''{cmd}'''", more)


def bash_file(name: str, cmd: str = "date") -> str:
    """Return a BashCmd as the text of a test file."""
    return (
        f"name = \"{name}\"\ndescription = \"d\"\ntest_template_name = \"BashCmd\"\ncmd_args = {{cmd = '''{cmd}'''}}\n"
    )
