"""How a command starts and ends: one exit code, one error text, the same error as JSON, and never a traceback."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import io
import json
import math
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from slipway.errors import (
    EXIT_ENVIRONMENT,
    EXIT_GOOD,
    EXIT_INTERRUPTED,
    EXIT_PIPE,
    EXIT_USAGE,
    MOST_FAULTS,
    Interrupted,
    SettingsError,
    SlipwayError,
    UsageError,
    error_lines,
)
from slipway.text import visible

WITH_RESULT = ("rehearse",)  # commands whose last line is always `[RESULT] ...`
JSON_OPTION = "--json"
NUMBERS: dict[str, Callable[[str], float]] = {"int": int, "float": float}


@dataclasses.dataclass
class Request:
    """What is known about the command before its arguments are checked: an error needs it too."""

    command: str = ""
    as_json: bool = False


class Command(TyperCommand):
    """A command that notes its name and whether `--json` was given, before wrong arguments end it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        values = self.values_of(ctx, args)
        if isinstance(ctx.obj, Request):
            ctx.obj.command = ctx.info_name or ""
            ctx.obj.as_json = bool(values.get("as_json"))
        if not ctx.resilient_parsing:
            self._refuse_values(values)
        return super().parse_args(ctx, args)

    def _refuse_values(self, values: dict[str, Any]) -> None:
        """Raise UsageError for an empty path, which would be the current folder, and for a number out of its range."""
        parameters: list[Any] = list(self.params)
        for parameter in parameters:
            given = values.get(parameter.name or "")
            name = next((name for name in parameter.opts if name.startswith("--")), parameter.metavar or parameter.name)
            for value in given if isinstance(given, list | tuple) else [given]:
                if value == "" and parameter.bare_type() in ("Path", "list[Path]"):
                    raise UsageError(f"{name} {value!r}: is empty. Hint: name a path")
                if isinstance(value, str) and parameter.bare_type() in NUMBERS:
                    _refuse_number(f"{name} {visible(value)}", value, parameter)

    def values_of(self, ctx: Any, args: list[str]) -> dict[str, Any]:
        """Return the arguments and options in `args`, wrong ones left out."""
        tolerant = type(ctx)(self, parent=ctx.parent, resilient_parsing=True, ignore_unknown_options=True)
        values: dict[str, Any] = self.make_parser(tolerant).parse_args(list(args))[0]
        return values

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted("interrupted") from None


def _refuse_number(shown: str, value: str, parameter: Any) -> None:
    least, most = parameter.min, parameter.max
    with contextlib.suppress(ValueError):
        number = NUMBERS[parameter.bare_type()](value)
        if (-math.inf if least is None else least) <= number < math.inf and (most is None or number <= most):
            return
    kind = "a whole number, " if parameter.bare_type() == "int" else ""
    raise UsageError(f"{shown}: must be {kind}{least} {'or more' if most is None else f'to {most}'}")


class NodeCommand(Command):
    """A command of `[NODE] -- COMMAND...`: the first word after `--` is never the node."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            node = [] if isinstance(self.values_of(ctx, args[:at]).get("node"), str) else [""]
            args = [*args[: at + 1], *node, *args[at + 1 :]]
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    """A group that notes `--json` for the errors that occur before a command reads its own arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if isinstance(ctx.obj, Request):
            ctx.obj.as_json = JSON_OPTION in args
        return super().parse_args(ctx, args)


def this_program() -> str:
    """Return `slipway` as the user can type it: by its name if it is on PATH, else by the path it was started with."""
    started, name = sys.argv[0], Path(sys.argv[0]).name
    if name == "__main__.py" and Path(started).parent == Path(__file__).parent:
        return f"{shlex.quote(sys.executable)} -m slipway"
    on_path = shutil.which(name)
    if name == "slipway" and (not on_path or not Path(on_path).samefile(started)):
        return shlex.quote(os.path.relpath(started) if Path(started).is_relative_to(Path.cwd()) else started)
    return "slipway"


def run(app: typer.Typer, arguments: list[str] | None = None) -> int:
    """Run the command of `arguments` (None: those of the process) and return its exit code."""
    if sys.stdout is None:  # started with its output closed
        sys.stdout = io.StringIO()
    try:
        return _run(app, arguments)
    except BrokenPipeError:  # the reader of the output has ended, as `| head` does
        return _without_output(EXIT_PIPE)
    except OSError as error:  # standard output is closed or on a full disk
        with contextlib.suppress(OSError, ValueError):
            place = f" {visible(str(error.filename))}" if error.filename else ""
            print(f"cannot write{place}: {error.strerror}", file=sys.stderr)
        return _without_output(EXIT_ENVIRONMENT)
    except SystemExit as error:  # typer and rich end like this when the reader of the output has ended
        if isinstance(error.__context__, BrokenPipeError):
            return _without_output(EXIT_PIPE)
        raise


def _run(app: typer.Typer, arguments: list[str] | None) -> int:
    """Run the command and print its error. Raises OSError if the output cannot be written."""
    request = Request()
    try:
        try:
            code = _with_needed_commands(app, arguments)(arguments, standalone_mode=False, obj=request)
        finally:
            sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_GOOD
    except SlipwayError as error:
        return _failed(request, error, error.exit_code)
    except typer.Abort:  # Ctrl-C at a question
        return _failed(request, Interrupted("interrupted"), EXIT_INTERRUPTED)
    except TyperException as error:
        show = getattr(error, "show", None)
        show() if show else print(error, file=sys.stderr)
        return _failed(request, error.format_message(), EXIT_USAGE, printed=True)


def _with_needed_commands(app: typer.Typer, arguments: list[str] | None) -> typer.Typer:
    """Return `app` with only the command that `arguments` begin with: typer takes long to build all of them."""
    name = next(iter(sys.argv[1:] if arguments is None else arguments), "")
    needed = copy.copy(app)
    named = [info for info in app.registered_commands if name == (info.name or getattr(info.callback, "__name__", ""))]
    needed.registered_commands = named or app.registered_commands
    return needed


def _without_output(code: int) -> int:
    """Return `code` after dropping what is still to be written: Python flushes once more when it ends."""
    sys.stdout = sys.__stdout__  # typer puts a file in front that does not report a closed pipe
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _failed(request: Request, error: Exception | str, code: int, *, printed: bool = False) -> int:
    """Print an error as text unless it is `printed` already, as JSON if it was asked for, and return `code`.

    An error of one line is printed once where the line `[RESULT]`, which repeats it, goes to the same place. Standard
    output is first where it is another place than standard error: nothing is printed if its reader has ended.
    """
    faults = error.faults if isinstance(error, SettingsError) else ()
    lines = [visible(line) for line in str(error).split("\n")][:MOST_FAULTS]
    texts = error_lines(error)
    result = sys.stderr if request.as_json else sys.stdout
    has_result = request.command in WITH_RESULT
    repeated = has_result and len(texts) == 1 and _same_place(result, sys.stderr)
    shown = {"exit_code": code, "text": "\n".join(lines), "faults": [fault.as_dict() for fault in faults]}
    parts = [(sys.stderr, text) for text in texts if not printed and not repeated]
    parts += [(sys.stdout, json.dumps({"error": shown}))] if request.as_json else []
    parts += [(result, f"[RESULT] FAILURE: {lines[0]}")] if has_result else []
    if not _same_place(sys.stdout, sys.stderr):
        parts.sort(key=lambda part: part[0] is sys.stderr)
    for stream, text in parts:
        try:
            print(text, file=stream, flush=True)
        except BrokenPipeError:
            raise
        except (OSError, ValueError):  # a closed terminal, a full disk
            _without_output(code)
    return code


def _same_place(one: TextIO, other: TextIO) -> bool:
    """Whether two streams end in one terminal, file or pipe."""
    with contextlib.suppress(OSError, ValueError):
        return one is other or os.path.sameopenfile(one.fileno(), other.fileno())
    return False
