"""Own templates: a TOML file with the arguments of a test and the program that it runs. None of it is code.

A word of the command is one word of the shell, whatever the arguments contain, so a file of settings never becomes
shell text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from acceptance.cloudai import forms
from acceptance.cloudai.remarks import NO_VALUE, Remarks, Spot
from acceptance.cloudai.results import NUMBER, Results, lines_of, missing
from acceptance.cloudai.schema import VARIABLE
from acceptance.cloudai.shell import words
from acceptance.cloudai.template_commands import Command, Job, image_of, option_words
from acceptance.cloudai.templates import REFUSED, TEMPLATES, Template
from acceptance.cloudai.toml_file import TomlFile
from acceptance.limits import Check
from acceptance.report.model import Figure

IMAGE = "docker_image_url"  # the argument whose value is the image that the program runs in
_TYPES: Mapping[str, forms.Form] = {
    "text": forms.text,
    "whole": forms.whole(-(1 << 50)),
    "number": forms.number,
    "boolean": forms.boolean,
}
_PLACE = re.compile(rf"(?<!\$)\{{({VARIABLE})\}}")
# A number that goes on, as 1,234 or 1.2.3, is not taken: its beginning would be another value.
_NUMBER = rf"[\s:=]{{0,100}}([-+]?){NUMBER}(?![0-9]|[.,][0-9])"
_NAME = forms.matching("[A-Za-z][A-Za-z0-9_]{0,63}", "must be a letter, then letters, digits and '_'", "rename it")
_ARGUMENT = {"type": forms.Key(forms.choice(*_TYPES), True), "default": forms.Key(forms.scalar)}
_FIGURE = {
    "name": forms.Key(forms.line, True),
    "after": forms.Key(forms.line, True),
    "unit": forms.Key(forms.text, default=""),
    "higher_is_better": forms.Key(forms.boolean, default=False),
}
_TEMPLATE = {
    "name": forms.Key(_NAME, True),
    "command": forms.Key(forms.listing(forms.text, least=1), True),
    "success": forms.Key(forms.line),
}
_FILE = {
    "template": forms.Key(forms.table(_TEMPLATE), True),
    "arguments": forms.Key(forms.mapping(forms.table(_ARGUMENT), VARIABLE), default={}),
    "figures": forms.Key(forms.listing(forms.table(_FIGURE)), default=[]),
}


def read_template(file: TomlFile, remarks: Remarks, known: Mapping[str, Template]) -> Template | None:
    """Return the template of a file, None after an error. known: the own templates that were read before."""
    before, spot = len(remarks.errors), Spot(file, remarks)
    values = forms.read_table(_FILE, file.data, spot)
    own, arguments = values.get("template", {}), values.get("arguments", {})
    name, command = own.get("name", ""), own.get("command", [])
    if name.lower() in {one.lower() for one in (*TEMPLATES, *REFUSED)}:
        spot.at("template", "name").error(name, "is the name of a template of CloudAI", "give it another name")
    if name in known:
        where = (known[name].own or {}).get("file")
        spot.at("template", "name").error(name, f"is also the name of {where}", "give each template its own name")
    schema = {one: _key(one, argument, spot.at("arguments", one)) for one, argument in arguments.items()}
    _check_command(command, schema, spot)
    names = [one.get("name") for one in values.get("figures", [])]
    for index, one in enumerate(names):
        if one in names[:index]:
            spot.at("figures", index, "name").error(one, "is also the name of another figure", "give it another name")
    if len(remarks.errors) > before:
        return None
    record = {
        "command": command,
        "success": own.get("success", ""),
        "figures": values["figures"],
        "file": str(file.path),
    }
    return Template(name, schema, separate_values=True, own=record)


def _key(name: str, argument: Mapping[str, Any], spot: Spot) -> forms.Key:
    form = _TYPES.get(argument.get("type", ""), forms.text)
    if name == IMAGE and form is not forms.text:
        spot.at("type").error(argument.get("type"), "must be text: it is the image", 'write "text"')
    if "default" not in argument:
        return forms.Key(forms.swept(form), required=True)
    return forms.Key(forms.swept(form), default=form(argument["default"], spot.at("default")))


def _check_command(command: list[str], schema: forms.Schema, spot: Spot) -> None:
    """Each {name} of the command must be an argument, and each argument be in the command. ${name} is the shell's."""
    used = {IMAGE}
    if command and not command[0].strip():
        spot.at("template", "command", 0).error(command[0], "must be a program", "write its name or path")
    for index, part in enumerate(command):
        for name in _PLACE.findall(part):
            used.add(name)
            if name not in schema:
                hint = spot.remarks.did_you_mean(name, schema, f"add [arguments.{name}]")
                spot.at("template", "command", index).error(part, f"{name} is no argument of this file", hint)
    for name in schema:
        if name not in used:
            spot.at("arguments", name).error(NO_VALUE, "is in no word of command", f'write "{{{name}}}" into it')


def own_command(job: Job) -> Command:
    """Return what a job of an own template runs: in the image of docker_image_url if it has this argument."""
    arguments = job.test.arguments
    parts = [_PLACE.sub(lambda match: _text(arguments[match[1]]), part) for part in job.test.other["own"]["command"]]
    url = arguments.get(IMAGE)
    return Command(words([*parts, *option_words(job.test)]), image_of(job, url) if url else None)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def own_results(own: Mapping[str, Any], folder: Path) -> Results:
    """Return the figures that the program printed, and checks: of those that are missing, and of `success`."""
    values: dict[str, float] = {}
    success, succeeded = own["success"], False
    patterns = {one["name"]: re.compile(rf"{re.escape(one['after'])}{_NUMBER}") for one in own["figures"]}
    for line in lines_of(folder / "stdout.txt"):
        succeeded = succeeded or success in line
        for name, pattern in patterns.items():
            match = pattern.search(line)
            if match and math.isfinite(value := float(match[1] + match[2])):
                values[name] = value
    units = {one["name"]: (one["unit"], one["higher_is_better"]) for one in own["figures"]}
    figures = [Figure(name, value, *units[name]) for name, value in values.items()]
    absent = [one for one in own["figures"] if one["name"] not in values]
    checks = [missing(f"number after {one['after']!r}, the {one['name']}", "stdout.txt") for one in absent]
    if success:
        verdict, has = ("pass", "has") if succeeded else ("fail", "does not have")
        checks.append(Check("results", verdict, f"stdout.txt {has} the text {success!r}"))
    return figures, checks
