"""The command line. The exit codes are in errors.py."""

from __future__ import annotations

import argparse
import os
import sys

from acceptance import __version__
from acceptance.cloudai.cli import add_cloudai_commands, add_log_options
from acceptance.errors import EXIT_ENVIRONMENT, EXIT_INTERRUPTED, EXIT_PIPE, AcceptanceError
from acceptance.explain import add_explain_command
from acceptance.history import add_history_command
from acceptance.list_command import add_list_command
from acceptance.parse_command import add_parse_command
from acceptance.preparation import OUTPUT
from acceptance.report_command import add_report_commands
from acceptance.runs import add_run_commands
from acceptance.suite import PROGRAMS, add_suite_commands, run_program
from acceptance.text import complain


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. Faults of the user or the machine never print a traceback."""
    try:
        try:
            return _run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # else Python does so after this function, and prints what fails then
    except BrokenPipeError:
        _drop_output()
        return EXIT_PIPE
    except AcceptanceError as error:
        complain(str(error))
        return error.exit_code
    except OSError as error:
        place = error.filename or "the file system"
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
            place = "standard output"
        complain(f"{place}: {error.strerror or error}. Hint: is it full or read-only?")
        return EXIT_ENVIRONMENT
    except KeyboardInterrupt:
        complain("interrupted")
        return EXIT_INTERRUPTED


def _run(words: list[str]) -> int:
    if words[:1] == ["--mode"]:  # as the CloudAI guide of 2024 names its commands
        words = words[1:]
    if words and words[0] in PROGRAMS:
        run_program(words[0], words[1:])
    arguments = command_parser().parse_args(words)
    code: int = arguments.do(arguments)
    return code


def _drop_output() -> None:
    """What is still in the buffer of standard output goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def command_parser() -> argparse.ArgumentParser:
    """Return the parser of every command; docs/acceptance-commands.md is made from it."""
    parser = argparse.ArgumentParser(prog="acceptance", description="Measure a GPU cluster through Slurm and judge it.")
    parser.add_argument("--version", action="version", version=f"acceptance {__version__}")
    add_log_options(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_run_commands(commands)
    add_parse_command(commands)
    add_explain_command(commands)
    add_report_commands(commands)
    add_history_command(commands, OUTPUT)
    add_suite_commands(commands)
    add_cloudai_commands(commands)
    add_list_command(commands)
    return parser
