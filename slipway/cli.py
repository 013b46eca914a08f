"""The command `slipway`. Each command here declares its arguments and calls the module that does the work."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway import __version__, command_line, completion
from slipway.command_line import Command, Group, NodeCommand
from slipway.completion import OS_NAMES, RESERVATION_KINDS, Values, one_of, settings_files
from slipway.errors import EXIT_GOOD, UsageError
from slipway.settings import Settings, load_settings

app = typer.Typer(
    name="slipway",
    cls=Group,
    help="One settings file becomes a checked, rehearsed, deployed and accepted GPU training cluster on AWS.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
export = typer.Typer(cls=Group, help="Write the cluster in the form of another tool.", no_args_is_help=True)
import_ = typer.Typer(cls=Group, help="Make a settings file from another tool's file.", no_args_is_help=True)
policies = typer.Typer(
    cls=Group, help="Print the IAM policies that a platform team gives for a settings file.", no_args_is_help=True
)
app.add_typer(export, name="export")
app.add_typer(policies, name="policy")
app.add_typer(import_, name="import")


def option(*names: str, help: str, values: Values | None = None, **more: Any) -> Any:
    """Return the declaration of an option; Tab offers `values`."""
    return typer.Option(*names, help=help, autocompletion=one_of(values) if values else None, **more)


_SETTINGS_FILE = typer.Argument(
    metavar="FILE", help="The settings file, e.g. clusters/rehearsal.yaml.", autocompletion=settings_files
)
SettingsFile = Annotated[Path, _SETTINGS_FILE]
Breaks = Annotated[
    list[str] | None,
    option(
        "--break",
        metavar="KIND",
        help="Inject a fault: slow-node=gpu-3, bootstrap=compute, bootstrap=head or hang.",
        values=completion.BREAK_KINDS,
    ),
]
AsJson = Annotated[bool, option("--json", help="Print one JSON object instead of text.")]
Output = Annotated[Path | None, option("--output", "-o", help="The file to write; default: standard output.")]
Deployed = Annotated[bool, option("--deployed", help="Read the ids from the deployed stacks.")]
Force = Annotated[bool, option("--force", help="Replace the output file if it exists.")]
Name = Annotated[str | None, option("--name", help="The cluster's name.")]
RegionName = Annotated[
    str | None, option("--region", help="The AWS region, e.g. us-east-1.", values=completion.region_names)
]
ZoneName = Annotated[
    str | None, option("--zone", help="The availability zone, e.g. us-east-1a.", values=completion.zone_names)
]
Part = Annotated[
    int | None, option("--part", min=1, help="Print this part of a policy that is too long for one managed policy.")
]
Policy = Annotated[bool, option("--policy", help="Print the IAM policy that this command needs, and ask AWS nothing.")]
Profile = Annotated[
    str | None, option("--profile", help="A profile of the AWS configuration.", values=completion.profiles)
]


@app.command(cls=Command)
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Settings files; `-` is standard input.", autocompletion=settings_files),
    ] = None,
    explain: Annotated[
        str | None,
        option(
            "--explain",
            metavar="RULE",
            help="Print why a rule exists; `all` lists the rules.",
            values=completion.rule_names,
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print every fault of settings files: file:line, value, rule and hint. Asks AWS nothing."""
    from slipway import check_command

    if explain is not None:
        return check_command.explain(explain, as_json=as_json)
    if not files:
        raise UsageError("Missing argument FILE. Hint: slipway check clusters/rehearsal.yaml")
    return check_command.check(files, as_json=as_json)


@export.command("pcluster", cls=Command)
def export_pcluster(
    file: SettingsFile,
    output: Output = None,
    deployed: Deployed = False,
    profile: Profile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> int:
    """Write ParallelCluster's cluster configuration. Ids that only a deployment knows are named placeholders."""
    from slipway.exchange.export import export_pcluster as run

    session = _session(profile if deployed else None)
    return run(file, output, as_json=as_json, deployed=deployed, force=force, session=session)


@export.command("env", cls=Command)
def export_env(
    file: SettingsFile,
    output: Output = None,
    queue: Annotated[str | None, option("--queue", help="The queue to describe; default: the first with GPUs.")] = None,
    deployed: Deployed = False,
    profile: Profile = None,
    force: Force = False,
    as_json: AsJson = False,
) -> int:
    """Write the shell variables of ParallelCluster runbooks: INSTANCE, NUM_INSTANCES, ..."""
    from slipway.exchange.export import export_env as run

    session = _session(profile if deployed else None)
    return run(file, output, queue=queue, as_json=as_json, deployed=deployed, force=force, session=session)


@export.command("cloudai", cls=Command)
def export_cloudai(
    file: SettingsFile,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write.")],
    image: Annotated[
        str | None, option("--image", help="The image with nccl-tests; default: the first of the settings' images.")
    ] = None,
    force: Annotated[bool, option("--force", help="Replace DIR if it has only files of an earlier export.")] = False,
    as_json: AsJson = False,
) -> int:
    """Write CloudAI's system, tests and scenario: what acceptance measures of the cluster."""
    from slipway.exchange.cloudai_export import export_cloudai as run

    return run(file, folder, image=image, force=force, as_json=as_json)


def _session(profile: str | None) -> Any:
    """Return a boto3 session of `profile`; None without one."""
    if profile is None:
        return None
    from slipway.aws.session import session_of

    return session_of(profile)


@import_.command("pcluster", cls=Command)
def import_pcluster(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A ParallelCluster configuration (3.x, YAML).")],
    output: Output = None,
    name: Name = None,
    region: RegionName = None,
    zone: ZoneName = None,
    vpc_id: Annotated[str | None, option("--vpc-id", help="The VPC of the configuration's subnets.")] = None,
    variables: Annotated[
        Path | None, option("--variables", help="A file of export NAME=value lines for placeholders ${NAME}.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> int:
    """Make a settings file from a ParallelCluster configuration, and list by path what could not be carried over."""
    from slipway.exchange.pcluster_import import import_pcluster as run

    known = {"name": name, "region": region, "zone": zone, "vpc_id": vpc_id}
    return run(file, output, variables=variables, as_json=as_json, force=force, **known)


@import_.command("env", cls=Command)
def import_env(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of `export NAME=value` lines; it is never run.")],
    output: Output = None,
    name: Name = None,
    region: RegionName = None,
    zone: ZoneName = None,
    force: Force = False,
    as_json: AsJson = False,
) -> int:
    """Make a settings file from a runbook's shell variables."""
    from slipway.exchange.env_import import import_env as run

    known = {"name": name, "region": region, "zone": zone}
    return run(file, output, as_json=as_json, force=force, **known)


@app.command(cls=Command)
def init(
    output: Annotated[
        Path | None, option("--output", "-o", help="The settings file to write; default: NAME.yaml here.")
    ] = None,
    name: Name = None,
    region: RegionName = None,
    zone: ZoneName = None,
    os_name: Annotated[str | None, option("--os", help=f"{', '.join(OS_NAMES)}.", values=OS_NAMES)] = None,
    instance_type: Annotated[
        str | None, option("--instance-type", help="Of the compute nodes.", values=completion.instance_types)
    ] = None,
    count: Annotated[str | None, option("--count", help="Number of compute nodes.")] = None,
    reservation: Annotated[str | None, option("--reservation", help="Id of the reservation, or none.")] = None,
    reservation_kind: Annotated[
        str | None, option("--reservation-kind", help=f"{' or '.join(RESERVATION_KINDS)}.", values=RESERVATION_KINDS)
    ] = None,
    key_pair: Annotated[str | None, option("--key-pair", help="EC2 key pair for SSH, or none.")] = None,
    profile: Profile = None,
    yes: Annotated[bool, option("--yes", help="Ask no question: use the options, else the defaults.")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> int:
    """Ask about a new cluster, offer the account's live reservations, and write its settings file."""
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
    return run(output, ask=None if yes else _ask, given=given, as_json=as_json, force=force, find=find)


def _ask(text: str, default: str) -> str:
    """Ask on standard error: standard output is for what the command writes."""
    try:
        answer: str = typer.prompt(text, default=default, err=True, show_default=bool(default))
    except typer.Abort as error:
        if not isinstance(error.__context__, EOFError):
            raise
        hint = "Hint: the option that answers it is in --help"
        raise UsageError(f"standard input ended before the answer: {text}. {hint}") from None
    return answer


@app.command(cls=Command)
def preflight(
    file: SettingsFile,
    profile: Profile = None,
    timeout: Annotated[float, option("--timeout", min=1, max=300, help="Seconds that a question may take.")] = 20.0,
    policy: Policy = False,
    as_json: AsJson = False,
) -> int:
    """Ask AWS, read-only, whether the cluster can be deployed: reservation, quotas, network, bucket, names and more."""
    from slipway.preflight.command import preflight as run
    from slipway.preflight.iam import reading_policy

    if policy:
        return _print_policy(file, reading_policy, "preflight")
    return run(file, as_json=as_json, profile=profile, timeout_s=timeout)


def _print_policy(
    file: Path,
    policy: Callable[[Settings], dict[str, Any]],
    command: str,
    *,
    as_json: bool = False,
    part: int | None = None,
    note: str = "",
) -> int:
    """Print a policy, which is JSON in any case; with --json on one line, as IAM counts its characters.

    `part` is the number of a part of a policy that is too long for one; `slipway policy COMMAND` prints it. Raises
    UsageError if the policy is too long, or if there is no such part.
    """
    from slipway.aws.policy import chosen

    document = chosen(policy(load_settings(file)), part, f"slipway policy {command} {file}", note)
    print(json.dumps(document, separators=(",", ":")) if as_json else json.dumps(document, indent=2))
    return EXIT_GOOD


@policies.command("deploy", cls=Command)
def policy_deploy(
    file: SettingsFile,
    execution: Annotated[
        bool,
        option(
            "--execution",
            help="Print the policy of the role that CloudFormation acts with: "
            "cdk bootstrap --cloudformation-execution-policies.",
        ),
    ] = False,
    with_reasons: Annotated[
        bool,
        option("--reasons", help="Print, instead, each action of that role's policy with what needs it."),
    ] = False,
    part: Part = None,
    as_json: AsJson = False,
) -> int:
    """Print the IAM policy of the person or the pipeline that deploys and deletes the cluster."""
    from slipway.deploy_policy import deployer_policy, execution_policy
    from slipway.execution_actions import reasons

    if with_reasons:
        explained = reasons(load_settings(file))
        lines = (f"{action}: {', '.join(needed_by)}" for action, needed_by in explained.items())
        print(json.dumps(explained) if as_json else "\n".join(lines))
        return EXIT_GOOD
    note = ", and cdk bootstrap --cloudformation-execution-policies takes their ARNs with commas"
    if execution:
        return _print_policy(file, execution_policy, "deploy --execution", as_json=as_json, part=part, note=note)
    return _print_policy(file, deployer_policy, "deploy", as_json=as_json, part=part)


@policies.command("preflight", cls=Command)
def policy_preflight(file: SettingsFile, part: Part = None, as_json: AsJson = False) -> int:
    """Print the IAM policy that `slipway preflight` needs, as `slipway preflight --policy` does."""
    from slipway.preflight.iam import reading_policy

    return _print_policy(file, reading_policy, "preflight", as_json=as_json, part=part)


@policies.command("status", cls=Command)
def policy_status(file: SettingsFile, as_json: AsJson = False) -> int:
    """Print the IAM policy that `slipway status` needs, as `slipway status --policy` does."""
    from slipway.status.command import policy as reading_policy

    return _print_policy(file, reading_policy, "status", as_json=as_json)


@policies.command("teardown", cls=Command)
def policy_teardown(file: SettingsFile, as_json: AsJson = False) -> int:
    """Print the IAM policy that `slipway teardown --delete-data` needs."""
    from slipway.teardown.policy import teardown_policy

    return _print_policy(file, teardown_policy, "teardown", as_json=as_json)


@app.command(cls=Command)
def cost(
    file: SettingsFile,
    offline: Annotated[bool, option("--offline", help="Use the prices of the data file, and ask AWS nothing.")] = False,
    hours: Annotated[
        float | None, option(min=0, help="Hours that the capacity block lasts, if AWS is not asked.")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> int:
    """Print what the cluster costs per hour, per month and over its capacity block, part by part."""
    from slipway.cost.command import cost as run

    return run(file, live=not offline, as_json=as_json, hours=hours, profile=profile)


@app.command(cls=Command)
def status(
    file: SettingsFile,
    profile: Profile = None,
    timeout: Annotated[
        float, option("--timeout", min=1, max=300, help="Seconds to wait for the head node's answer.")
    ] = 45.0,
    policy: Policy = False,
    as_json: AsJson = False,
) -> int:
    """Print how the cluster is: stacks, head node, fleet, set-up of the nodes, health, last acceptance."""
    from slipway.status.command import policy as reading_policy
    from slipway.status.command import status as run

    if policy:
        return _print_policy(file, reading_policy, "status")
    return run(file, as_json=as_json, profile=profile, timeout_s=timeout)


Extra = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGUMENT...]", help="More arguments for the CDK CLI, after `--`.")
]


@app.command(cls=Command)
def deploy(
    file: SettingsFile,
    extra: Extra = None,
    profile: Profile = None,
    require_approval: Annotated[
        str | None,
        option(
            "--require-approval",
            help="When the CDK CLI asks first: never, any-change or broadening.",
            values=completion.APPROVALS,
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Deploy the cluster, or change it: check the settings, then print and run `cdk deploy --all`."""
    from slipway.deploy import run_cdk

    if require_approval not in (None, *completion.APPROVALS):
        known = ", ".join(completion.APPROVALS)
        raise UsageError(f"--require-approval {require_approval}: unknown. Hint: one of {known}")
    approval = ["--require-approval", require_approval] if require_approval else []
    return run_cdk("deploy", file, profile=profile, extra=[*approval, *(extra or ())], as_json=as_json)


@app.command(cls=Command)
def diff(file: SettingsFile, extra: Extra = None, profile: Profile = None, as_json: AsJson = False) -> int:
    """Print what `slipway deploy` would change: check the settings, then print and run `cdk diff`."""
    from slipway.deploy import run_cdk

    return run_cdk("diff", file, profile=profile, extra=extra or (), as_json=as_json)


@app.command(cls=Command)
def destroy(
    file: SettingsFile,
    extra: Extra = None,
    profile: Profile = None,
    yes: Annotated[bool, option("--yes", help="Do not ask for the cluster's name.")] = False,
    as_json: AsJson = False,
) -> int:
    """Delete the cluster's stacks after naming what stays: print and run `cdk destroy`."""
    from slipway.destroy import destroy as run

    ask = None if yes else functools.partial(_ask, default="")
    return run(file, ask=ask, profile=profile, extra=extra or (), as_json=as_json)


@app.command(cls=Command)
def teardown(
    file: SettingsFile,
    delete_data: Annotated[
        bool,
        option("--delete-data", help="Delete the data too: file system, volumes, bucket, metrics, logs, backups."),
    ] = False,
    confirm: Annotated[
        str | None, option("--confirm", metavar="NAME", help="The cluster's name, instead of the question for it.")
    ] = None,
    profile: Profile = None,
    timeout: Annotated[
        float, option("--timeout", min=1, max=600, help="Minutes to wait for one stack or one file system.")
    ] = 60.0,
    as_json: AsJson = False,
) -> int:
    """Take the cluster down in order, after printing what goes, what stays and what that costs a month."""
    from slipway.teardown.command import teardown as run

    ask = functools.partial(_ask, default="")
    return run(
        file, ask=ask, confirm=confirm, delete_data=delete_data, profile=profile, minutes=timeout, as_json=as_json
    )


@app.command(cls=Command)
def ssh(
    file: SettingsFile,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Run this instead of a shell, after `--`.")
    ] = None,
    profile: Profile = None,
    as_json: AsJson = False,
) -> int:
    """Open a shell on the head node through Session Manager. With --json, print the command line and open nothing."""
    from slipway.ssh import ssh as run

    return run(file, command or (), profile=profile, as_json=as_json)


@app.command(cls=Command)
def logs(
    file: SettingsFile,
    node: Annotated[
        str | None, option("--node", help="Only this node: its host name, its instance id, or head.")
    ] = None,
    group: Annotated[
        str, option("--group", help=f"Which logs: {', '.join(completion.LOG_GROUPS)}.", values=completion.LOG_GROUPS)
    ] = "setup",
    since: Annotated[str, option("--since", help="How far back: a number and s, m, h or d.")] = "1h",
    follow: Annotated[bool, option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    profile: Profile = None,
    as_json: AsJson = False,
) -> int:
    """Print the cluster's logs from CloudWatch."""
    from slipway.logs import logs as run

    return run(file, node=node, group=group, since=since, follow=follow, profile=profile, as_json=as_json)


@app.command(cls=Command)
def rehearse(
    file: Annotated[Path | None, _SETTINGS_FILE] = None,
    cloud_only: Annotated[bool, option("--cloud-only", help="Rehearse up to Slurm; needs no root.")] = False,
    break_: Breaks = None,
    port: Annotated[
        int, option(min=0, max=65535, help="Port of the embedded AWS, with --cloud-only; 0: any free port.")
    ] = 0,
    max_hosts: Annotated[int, option(min=1, max=32, help="Boot at most this many compute hosts per queue.")] = 8,
    output: Annotated[Path, option("--output", "-o", help="The folder for the report and the logs.")] = Path(
        "rehearsals"
    ),
    test_scenario: Annotated[
        Path | None,
        option(
            "--test-scenario", metavar="TOML", help="Run this CloudAI scenario instead of the settings' acceptance."
        ),
    ] = None,
    scenario: Annotated[
        Path | None, option("--scenario", metavar="TOML", hidden=True, help="The earlier name of --test-scenario.")
    ] = None,
    shell: Annotated[
        bool, option("--shell", help="After acceptance, open a shell on the rehearsed head node.")
    ] = False,
    keep: Annotated[
        bool, option("--keep", help="Leave the rehearsed cluster running after the verdict, for `slipway shell`.")
    ] = False,
    hours: Annotated[
        float | None, option("--hours", min=0.001, max=72, help="With --keep: the cluster ends after this time; 2.")
    ] = None,
    end: Annotated[
        str | None, option("--end", metavar="NAME", help="End the kept cluster of this name; rehearse nothing.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Rehearse the deployment on this machine: embedded AWS, real Slurm hosts, real all_reduce, verdict and report."""
    from slipway.rehearse import NO_SETTINGS, Rehearsal
    from slipway.rehearse import rehearse as run

    options = Rehearsal(
        settings=file or NO_SETTINGS,
        cloud_only=cloud_only,
        breaks=tuple(break_ or ()),
        port=port,
        max_hosts=max_hosts,
        output=output,
        test_scenario=test_scenario or scenario,
        shell=shell,
        keep=keep,
        hours=hours,
        end=end,
        as_json=as_json,
    )
    return run(options)


@app.command(cls=NodeCommand)
def shell(
    node: Annotated[
        str | None, typer.Argument(metavar="[NODE]", help="A node's name or its end; default: the head node.")
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- COMMAND...]", help="After `--`: run this there instead of a shell."),
    ] = None,
    cluster: Annotated[
        str | None, option("--cluster", metavar="NAME", help="The kept cluster; needed if there are several.")
    ] = None,
) -> int:
    """Open a shell as the cluster's user on a node of the cluster that `slipway rehearse --keep` left running."""
    from slipway.kept import shell as run

    return run(node, command or (), cluster=cluster)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit()


@app.callback()
def options(
    _: Annotated[
        bool, option("--version", callback=_print_version, is_eager=True, help="Print Slipway's version.")
    ] = False,
) -> None:
    """Declare the options that need no command; the help text is the app's."""


@app.command(cls=Command)
def version(as_json: AsJson = False) -> int:
    """Print Slipway's version."""
    print(json.dumps({"version": __version__}) if as_json else __version__)
    return EXIT_GOOD


@app.command("app", hidden=True)
def cdk_app() -> None:
    """Run the CDK app: `cdk deploy --all --app 'slipway app' --context settings=FILE`, outside the checkout."""
    from slipway.cdk_app import run_app

    run_app()


def main() -> int:
    """Run `slipway` with the arguments of this process and return the exit code."""
    return command_line.run(app)
