"""The command ``slipway``: each subcommand is a few lines that call the module which does the work."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from slipway import __version__
from slipway.errors import (
    EXIT_ENVIRONMENT,
    EXIT_GOOD,
    EXIT_INTERRUPTED,
    EXIT_PIPE,
    EXIT_USAGE,
    SettingsError,
    SlipwayError,
    UsageError,
)
from slipway.settings import Examination, examine, load_settings
from slipway.text import plural, visible

app = typer.Typer(
    name="slipway",
    help="One settings file becomes a checked, rehearsed, deployed and accepted GPU training cluster on AWS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
export = typer.Typer(help="Write the cluster in the form of another tool.", no_args_is_help=True)
import_ = typer.Typer(help="Make a settings file from another tool's file.", no_args_is_help=True)
app.add_typer(export, name="export")
app.add_typer(import_, name="import")

SHOWN_FAULTS = 100


class Ended(Exception):
    """A command has come to its end and told it; ``code`` is its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


SettingsFile = Annotated[Path, typer.Argument(metavar="FILE", help="The settings file, e.g. clusters/rehearsal.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; standard output when left out.")]
Deployed = Annotated[bool, typer.Option("--deployed", help="Ids from the stacks that stand, read from AWS.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if there is one.")]
Name = Annotated[str | None, typer.Option("--name", help="The cluster's name.")]
RegionName = Annotated[str | None, typer.Option("--region", help="The AWS region, e.g. us-east-1.")]
Policy = Annotated[
    bool, typer.Option("--policy", help="Print the IAM policy that lets you ask everything; asks nothing.")
]
Profile = Annotated[str | None, typer.Option("--profile", help="A profile of the AWS configuration.")]
ZoneName = Annotated[str | None, typer.Option("--zone", help="The availability zone, e.g. us-east-1a.")]


@app.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The settings file, e.g. clusters/rehearsal.yaml.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="RULE", help="Say why a rule exists; `all` lists them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say everything wrong with a settings file: file:line, value, rule and hint. Asks nothing of AWS."""
    if explain is not None:
        _explain(explain, as_json)
        return
    if file is None:
        raise UsageError("Missing argument FILE. Hint: slipway check clusters/rehearsal.yaml")
    found = examine(file)
    (_check_as_json if as_json else _check_as_text)(file, found)
    raise Ended(EXIT_USAGE if found.faults else EXIT_GOOD)


def _explain(name: str, as_json: bool) -> None:
    from slipway.settings.rules.explain import explain

    rows = explain(name)
    if as_json:
        print(json.dumps({"rules": [row.as_dict() for row in rows]}))
    elif name == "all":
        for row in rows:
            print(f"{row.name:32} {row.kind:8} {row.severity}")
    else:
        print(rows[0])


def _check_as_json(file: Path, found: Examination) -> None:
    told = {"faults": found.faults, "warnings": found.warnings}
    lists = {kind: [fault.as_dict() for fault in faults] for kind, faults in told.items()}
    print(json.dumps({"file": str(file), "valid": not found.faults, **lists}))


def _check_as_text(file: Path, found: Examination) -> None:
    told = sorted((*found.faults, *found.warnings), key=lambda fault: (fault.line, fault.path))
    for fault in told[:SHOWN_FAULTS]:
        print(visible(str(fault)), file=sys.stderr)
    if told:
        counts = f"{plural(len(found.faults), 'fault')}, {plural(len(found.warnings), 'warning')}"
        print(visible(f"{counts} in {file}"), file=sys.stderr)
    settings = found.settings
    if settings:
        nodes = ", ".join(f"{queue.name}: {_count(queue)} x {queue.instance_type}" for queue in settings.queues)
        print(visible(f"{file}: good ({settings.name} in {settings.zone}; {nodes})"))


@export.command("pcluster")
def export_pcluster(
    file: SettingsFile,
    output: Output = None,
    deployed: Deployed = False,
    profile: Profile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write ParallelCluster's cluster configuration. Ids that only a deployment knows are placeholders, each named."""
    from slipway.exchange.export import export_pcluster as run

    session = _session(profile if deployed else None)
    raise Ended(run(file, output, as_json=as_json, deployed=deployed, force=force, session=session))


@export.command("env")
def export_env(
    file: SettingsFile,
    output: Output = None,
    queue: Annotated[
        str | None, typer.Option("--queue", help="The queue to describe; the first one with GPUs when left out.")
    ] = None,
    deployed: Deployed = False,
    profile: Profile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write shell variables (INSTANCE, NUM_INSTANCES, ...) as runbooks for ParallelCluster want them."""
    from slipway.exchange.export import export_env as run

    session = _session(profile if deployed else None)
    raise Ended(run(file, output, queue=queue, as_json=as_json, deployed=deployed, force=force, session=session))


def _session(profile: str | None) -> Any:
    """A boto3 session of ``profile``; None without one."""
    if profile is None:
        return None
    from slipway.aws.session import session_of

    return session_of(profile)


@import_.command("pcluster")
def import_pcluster(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A ParallelCluster configuration (3.x, YAML).")],
    output: Output = None,
    name: Name = None,
    region: RegionName = None,
    zone: ZoneName = None,
    vpc_id: Annotated[str | None, typer.Option("--vpc-id", help="The VPC of the configuration's subnets.")] = None,
    variables: Annotated[
        Path | None, typer.Option("--variables", help="A file of export NAME=value lines for placeholders ${NAME}.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Turn a ParallelCluster configuration into a settings file; say by path what could not be carried over."""
    from slipway.exchange.pcluster_import import import_pcluster as run

    given = {"name": name, "region": region, "zone": zone, "vpc_id": vpc_id}
    raise Ended(run(file, output, **given, variables=variables, as_json=as_json, force=force))


@import_.command("env")
def import_env(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of export NAME=value lines; it is never run.")],
    output: Output = None,
    name: Name = None,
    region: RegionName = None,
    zone: ZoneName = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Turn a runbook's shell variables into a settings file."""
    from slipway.exchange.env_import import import_env as run

    raise Ended(run(file, output, name=name, region=region, zone=zone, as_json=as_json, force=force))


@app.command()
def init(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The settings file to write; NAME.yaml here when left out.")
    ] = None,
    name: Name = None,
    region: RegionName = None,
    zone: ZoneName = None,
    os_name: Annotated[str | None, typer.Option("--os", help="ubuntu2204, ubuntu2404 or alinux2023.")] = None,
    instance_type: Annotated[str | None, typer.Option("--instance-type", help="Of the compute nodes.")] = None,
    count: Annotated[str | None, typer.Option("--count", help="Compute nodes.")] = None,
    reservation: Annotated[str | None, typer.Option("--reservation", help="Id of the reservation, or none.")] = None,
    reservation_kind: Annotated[
        str | None, typer.Option("--reservation-kind", help="capacity-block or on-demand.")
    ] = None,
    key_pair: Annotated[str | None, typer.Option("--key-pair", help="EC2 key pair for SSH, or none.")] = None,
    profile: Profile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the defaults for what is not given.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Ask for a new cluster, offer the reservations that are there, and write its settings file."""
    from slipway.exchange.create import init as run
    from slipway.exchange.create import live_reservations

    find = functools.partial(live_reservations, session=_session(profile)) if profile else None
    given = {
        "name": name,
        "region": region,
        "zone": zone,
        "os": os_name,
        "instance_type": instance_type,
        "count": count,
        "reservation": reservation,
        "reservation_kind": reservation_kind,
        "key_pair": key_pair,
    }
    raise Ended(run(output, ask=_ask, given=given, yes=yes, as_json=as_json, force=force, find=find))


def _print_policy(policy: dict[str, Any]) -> None:
    print(json.dumps(policy, indent=2))


def _ask(text: str, default: str) -> str:
    """On standard error: standard output is for what the command writes."""
    answer: str = typer.prompt(text, default=default, err=True, show_default=bool(default))
    return answer


@app.command()
def preflight(
    file: SettingsFile,
    profile: Profile = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, max=300, help="Seconds that a question may take.")
    ] = 20.0,
    policy: Policy = False,
    as_json: AsJson = False,
) -> None:
    """Ask AWS, read-only, whether the cluster can be deployed: reservation, quotas, network, bucket, names and more."""
    if policy:
        from slipway.preflight.iam import reading_policy

        return _print_policy(reading_policy(load_settings(file)))
    from slipway.preflight.command import preflight as run

    raise Ended(run(file, as_json=as_json, profile=profile, timeout_s=timeout))


@app.command()
def cost(
    file: SettingsFile,
    offline: Annotated[
        bool, typer.Option("--offline", help="Prices of the data file alone; asks nothing of AWS.")
    ] = False,
    hours: Annotated[
        float | None, typer.Option(min=0, help="Hours the capacity block lasts, when AWS is not asked for it.")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> None:
    """What the cluster costs an hour, a month and over its capacity block, part by part."""
    from slipway.cost.command import cost as run

    raise Ended(run(file, live=not offline, as_json=as_json, hours=hours, profile=profile))


@app.command()
def status(
    file: SettingsFile,
    profile: Profile = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, max=300, help="Seconds to wait for the head node's answer.")
    ] = 45.0,
    policy: Policy = False,
    as_json: AsJson = False,
) -> None:
    """How the cluster is: stacks, head node, fleet, set-up of the nodes, background work, health, last acceptance."""
    if policy:
        from slipway.status.command import policy as reading_policy

        return _print_policy(reading_policy(load_settings(file)))
    from slipway.status.command import status as run

    raise Ended(run(file, as_json=as_json, profile=profile, timeout_s=timeout))


@app.command()
def rehearse(
    file: SettingsFile,
    cloud_only: Annotated[bool, typer.Option("--cloud-only", help="Everything up to Slurm; needs no root.")] = False,
    break_: Annotated[
        list[str] | None,
        typer.Option(
            "--break",
            metavar="KIND",
            help="A fault on purpose: slow-node=gpu-3, bootstrap=compute, bootstrap=head, hang.",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the embedded AWS with --cloud-only; 0: a free one.")
    ] = 0,
    max_hosts: Annotated[int, typer.Option(min=1, max=32, help="Boot at most this many compute hosts a queue.")] = 8,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the report and the logs go.")] = Path(
        "rehearsals"
    ),
    as_json: AsJson = False,
) -> None:
    """The whole deployment on this machine: embedded AWS, real Slurm hosts, real all_reduce, verdict and report."""
    from slipway.rehearse import Rehearsal
    from slipway.rehearse import rehearse as run

    load_settings(file)
    options = Rehearsal(
        settings=file.resolve(),
        cloud_only=cloud_only,
        breaks=tuple(break_ or ()),
        port=port,
        max_hosts=max_hosts,
        output=output,
        as_json=as_json,
    )
    raise Ended(run(options))


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise Ended(EXIT_GOOD)


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print Slipway's version.")
    ] = False,
) -> None:
    """What is there without a command; the help text is the app's."""


@app.command()
def version() -> None:
    """Print Slipway's version."""
    print(__version__)


@app.command("app", hidden=True)
def cdk_app() -> None:
    """Run the CDK app: `cdk deploy --all --app 'slipway app' --context settings=FILE`, outside the checkout."""
    from slipway.cdk_app import run_app

    run_app()


def _count(queue: Any) -> str:
    return str(queue.max_count) if queue.min_count == queue.max_count else f"{queue.min_count} to {queue.max_count}"


def main() -> int:
    """Run the command; every error that Slipway knows ends in its text and its exit code, never in a traceback."""
    if sys.stdout is None:  # started with its output closed
        sys.stdout = io.StringIO()
    try:
        try:
            code = app(standalone_mode=False)
        except Ended as end:
            return end.code
        finally:
            sys.stdout.flush()
    except SlipwayError as error:
        return _failed(error, error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return _failed("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:  # as `| head` does it: nobody wants to read more
        return _without_output(EXIT_PIPE)
    except OSError as error:  # standard output closed, or on a full disk
        with contextlib.suppress(OSError, ValueError):
            print(f"cannot write: {error.strerror}", file=sys.stderr)
        return _without_output(EXIT_ENVIRONMENT)
    except SystemExit as error:  # how typer and rich end when the reader has gone
        if isinstance(error.__context__, BrokenPipeError):
            return _without_output(EXIT_PIPE)
        raise
    except TyperException as error:
        show = getattr(error, "show", None)
        show() if show else print(error, file=sys.stderr)
        return _failed(error, EXIT_USAGE, told=True)
    if code == EXIT_INTERRUPTED:  # typer makes this of Ctrl-C, and says nothing
        return _failed("interrupted", EXIT_INTERRUPTED)
    return code if isinstance(code, int) else EXIT_GOOD


def _without_output(code: int) -> int:
    """``code``, after what is still to be written is thrown away: Python flushes once more when it ends."""
    sys.stdout = sys.__stdout__  # typer puts a file in front that says nothing of a closed pipe
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return code


def _failed(error: Exception | str, code: int, *, told: bool = False) -> int:
    """Tell an error as text, unless it is ``told`` already, and with --json as an object too; gives ``code`` back."""
    faults = error.faults if isinstance(error, SettingsError) else ()
    lines = [visible(str(fault)) for fault in faults] or [visible(line) for line in str(error).split("\n")]
    if not told:
        more = [f"and {len(lines) - SHOWN_FAULTS} more"] if len(lines) > SHOWN_FAULTS else []
        print(*lines[:SHOWN_FAULTS], *more, sep="\n", file=sys.stderr)
    if "--json" in sys.argv:
        shown = {
            "exit_code": code,
            "text": "\n".join(lines[:SHOWN_FAULTS]),
            "faults": [fault.as_dict() for fault in faults],
        }
        with contextlib.suppress(OSError, ValueError):
            print(json.dumps({"error": shown}), flush=True)
    return code
