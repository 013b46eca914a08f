"""The batch script of one job, and the files next to it. Every value of the files is one word of the shell."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acceptance import __version__
from acceptance.cloudai.nemo import repository_name
from acceptance.cloudai.shell import batch_value, lines, word, words
from acceptance.cloudai.template_commands import INSTALLED, RESULTS, Command, Job
from acceptance.cloudai.time_limit import slurm_time
from acceptance.scenario.runs import TestDefinition

_STREAMS = {"output": "out", "error": "err"}
SCRIPT, LAUNCHER, VARIABLES, HOSTS = "cloudai_sbatch_script.sh", "generated_command.sh", "env_vars.sh", "hostfile.txt"
METADATA = "metadata.sh"
_MOUNTS = "--container-mounts"
NOTES = "notes.txt"  # what the script notes about itself: notes.py reads it


@dataclass(frozen=True)
class Step:
    """A job's main step, or one of its hooks: its facts and its command. srun: options of the run in the scenario."""

    job: Job
    command: Command
    srun: str = ""
    is_hook: bool = False


@dataclass(frozen=True)
class Batch:
    """One job: main step, hooks, and what it does with other jobs at its end.

    title: the first comment. number: of the job, from 1. ends: ids of tests whose jobs end with this one. ends_all: a
    failure ends all jobs. folder: the scenario's, with end-jobs.sh. exclude: nodes that Slurm may not choose.
    """

    title: str
    number: int
    name: str
    main: Step
    pre: tuple[Step, ...]
    post: tuple[Step, ...]
    time_limit_s: int | None
    ends: tuple[str, ...]
    ends_all: bool
    folder: Path


def files_of(batch: Batch) -> dict[str, str]:
    """Return the files of a job by their name below its folder."""
    main = batch.main
    files = dict(_step_files(main, ""))
    for kind, steps in (("pre_test", batch.pre), ("post_test", batch.post)):
        for step in steps:
            files.update(_step_files(step, f"{kind}/{step.job.test.name}/"))
    if main.job.nodes.names:
        tasks = main.job.system.get("ntasks_per_node", 1)
        files[HOSTS] = "".join(f"{name}\n" * tasks for name in main.job.nodes.names)
    files[SCRIPT if _in_slurm(main) and not main.command.by_launcher else LAUNCHER] = _script(batch)
    return files


def _step_files(step: Step, before: str) -> Iterator[tuple[str, str]]:
    variables = {**step.job.variables, **step.command.environment}
    head = "# shellcheck shell=bash\n# The variables of this test, for each of its tasks.\n"
    yield f"{before}{VARIABLES}", head + "".join(f"export {name}={word(text)}\n" for name, text in variables.items())
    for name, text in step.command.files.items():
        yield f"{before}{name}", text


def _script(batch: Batch) -> str:
    head = ["#!/bin/bash", f"# {batch.title}, written by acceptance {__version__}."]
    if batch.main.command.by_launcher:
        source = f"source {word(batch.main.job.directory / VARIABLES)}"
        note = "# Run it on the head node: the launcher submits a job itself."
        return "\n".join([*head, note, "set -eo pipefail", source, "", batch.main.command.text]) + "\n"
    if _in_slurm(batch.main):
        parts = [*head, *_directives(batch), *_setup(batch), *_ending(batch), *_mapping(batch)]
    else:
        parts = [*head, *_notes(batch, str(batch.number), '"$(uname -n)"'), "trap 'note exit \"$?\"' EXIT"]
    for step in batch.pre:
        parts += ["", f"# pre_test: {step.job.test.name}", *_gate(step)]
    parts += ["", "# the test", "note begin test", *batch.main.command.before, "code=0"]
    parts += [f"{_command(batch.main)} || code=$?", 'note end "$code"']
    if batch.post:
        parts += ["if ((code != 0)); then", '  exit "$code" # without post_test', "fi"]
        for step in batch.post:
            name = step.job.test.name
            parts += ["", f"# post_test: {name}", f"note begin post_test {word(name)}", f"{_hook(step)} || code=$?"]
            parts += ['note end "$code"']
    return "\n".join([*parts, 'exit "$code"']) + "\n"


def _directives(batch: Batch) -> Iterator[str]:
    job, system = batch.main.job, batch.main.job.system
    yield f"#SBATCH --job-name={batch_value(batch.name)}"
    for stream, end in _STREAMS.items():
        yield f"#SBATCH --{stream}={batch_value(f'{_pattern(job.directory)}/std{end}.txt')}"
    yield f"#SBATCH --partition={batch_value(system['default_partition'])}"
    if system.get("account"):
        yield f"#SBATCH --account={batch_value(system['account'])}"
    reservation = _reservation(system.get("extra_srun_args", ""))
    if reservation:
        yield f"#SBATCH --reservation={batch_value(reservation)}"
    if system.get("distribution"):
        yield f"#SBATCH --distribution={batch_value(system['distribution'])}"
    if job.nodes.names:
        if job.nodes.from_groups:
            yield "# The nodes were chosen from their group in its order: Slurm was not asked which are free."
        yield f"#SBATCH --nodelist={','.join(job.nodes.names)}"
    else:
        yield f"#SBATCH --nodes={job.nodes.count}"
        if job.nodes.exclude:
            yield f"#SBATCH --exclude={','.join(job.nodes.exclude)}"
    if system.get("gpus_per_node"):
        yield f"#SBATCH --gres=gpu:{system['gpus_per_node']}"
    if system.get("ntasks_per_node"):
        yield f"#SBATCH --ntasks-per-node={system['ntasks_per_node']}"
    if batch.time_limit_s:
        yield f"#SBATCH --time={slurm_time(batch.time_limit_s)}"
    yield from (f"#SBATCH {argument}" for argument in system["extra_sbatch_args"])


def _pattern(path: Path | str) -> str:
    """Return a path for --output and --error, in which Slurm replaces %j and the like."""
    return str(path).replace("%", "%%")


def _reservation(arguments: str) -> str:
    """The reservation of srun's options, which the job needs too."""
    parts = shlex.split(arguments)
    for index, part in enumerate(parts):
        if part.startswith("--reservation"):
            return part.partition("=")[2] or "".join(parts[index + 1 : index + 2])
    return ""


def _in_slurm(step: Step) -> bool:
    return bool(step.job.system["scheduler"] == "slurm")


def _notes(batch: Batch, number: str, nodes: str, *before: str) -> Iterator[str]:
    """The variables, and the notes of the script for the report. number, nodes: of the job, as words of the shell."""
    job = batch.main.job
    yield from ("", "set -o pipefail", f"source {word(job.directory / VARIABLES)}", *before)
    yield "note() { # when, and what: for the report"
    yield from (f"  printf '%(%s)T %s\\n' -1 \"$*\" >>{word(job.directory / NOTES)}", "}")
    yield f"note start {number} {nodes}"


def _setup(batch: Batch) -> Iterator[str]:
    job = batch.main.job
    master = 'SLURM_JOB_MASTER_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
    names = ('"$SLURM_JOB_ID"', '"$SLURM_JOB_NODELIST"')
    yield from _notes(batch, *names, master, "export SLURM_JOB_MASTER_NODE")
    if job.variables.get("ENABLE_VBOOST") == "1":
        yield lines(
            [
                f"srun --ntasks={job.nodes.count} --ntasks-per-node=1",
                word(f"--output={_pattern(job.directory)}/vboost.out"),
                word(f"--error={_pattern(job.directory)}/vboost.err"),
                "sudo nvidia-smi boost-slider --vboost 1",
            ]
        )


def _ending(batch: Batch) -> Iterator[str]:
    """What the job does when it ends, however it ends, as long as its node lives."""
    script, ended = word(batch.folder / "end-jobs.sh"), word(batch.folder / "ended")
    yield from ("", "finish() {", "  local code=$?", '  note exit "$code"')
    if batch.ends_all:
        yield f"  if ((code != 0)) && [[ ! -e {ended}/$SLURM_JOB_ID ]]; then # job_status_check"
        yield from (f"    {script} --all", "  fi")
    if batch.ends:
        yield f"  {script} {words(batch.ends)} # end_post_comp"
    yield from ("}", "trap finish EXIT")


def _mapping(batch: Batch) -> Iterator[str]:
    """One step that notes where each rank runs, and, once a node, what the node is."""
    main = batch.main
    ranks = 'echo "$(hostname): node $SLURM_NODEID, rank $SLURM_PROCID"'
    node = f"bash {word(batch.folder / METADATA)} {word(main.job.directory / 'metadata')}"
    text = f"{ranks}; if ((SLURM_LOCALID == 0)); then {node}; fi"
    files = [word(f"--{name}={_pattern(main.job.directory)}/mapping-std{end}.txt") for name, end in _STREAMS.items()]
    yield from ("", "# where each rank runs, and what the nodes are")
    yield lines([*_srun(main), *files, f"bash -c {shlex.quote(text)}"])


def _srun(step: Step) -> list[str]:
    """srun with its nodes and tasks. The host file keeps the order of the names for the ranks, for this step only."""
    job, nodes, tasks = step.job, step.job.nodes, step.job.system.get("ntasks_per_node", 1)
    if step.command.alone:
        return ["srun", "--nodes=1", "--ntasks=1"]
    if step.is_hook:
        return ["srun", f"--nodes={nodes.count}", f"--ntasks={nodes.count * tasks}"]
    if not nodes.names:
        return ["srun", f"--nodes={nodes.count}"]
    hosts = f"SLURM_HOSTFILE={word(job.directory / HOSTS)} srun"
    return [hosts] if job.system.get("distribution") else [hosts, "--distribution=arbitrary"]


def main_command(batch: Batch) -> str:
    """Return the main step as the script runs it."""
    return batch.main.command.text if batch.main.command.by_launcher else _command(batch.main)


def _command(step: Step, options: Sequence[str] = ()) -> str:
    """The main step, or that of a hook, as one command of the batch script."""
    job, command = step.job, step.command
    nsys = nsys_of(job.test)
    text = f"{nsys} {command.text}" if nsys else command.text
    program = f"bash -c {shlex.quote(f'source {word(job.directory / VARIABLES)}; {text}')}"
    if command.in_script:
        return program
    placed = any(option.startswith("--nodes=") for option in command.options)
    parts = ["srun"] if placed else _srun(step)
    parts += ["--export=ALL"]
    parts += [] if command.alone else [word(f"--mpi={command.mpi or job.system['mpi']}")]
    parts += options
    texts = (job.system.get("extra_srun_args", ""), step.srun)
    own, given = list(command.options), [shlex.split(text) for text in texts if text]
    if command.image:
        mounts = [*mounts_of(step), *(mount for listed in (own, *given) for mount in _take_mounts(listed))]
        parts += [word(command.container or f"--container-image={command.image}")]
        parts += [word(f"--container-mounts={','.join(mounts)}")]
        if not job.system["container_mount_home"]:
            parts.append("--no-container-mount-home")
    parts += [word(option) for option in own]
    return lines([*parts, *(words(listed) for listed in given if listed), program])


def _take_mounts(options: list[str]) -> list[str]:
    """Take the mounts out of options: of several --container-mounts, Slurm hands only the last to the nodes."""
    taken: list[str] = []
    for at in reversed(range(len(options))):
        if options[at].startswith(f"{_MOUNTS}="):
            taken.insert(0, options.pop(at).partition("=")[2])
        elif options[at] == _MOUNTS:
            taken[:0] = options[at + 1 : at + 2]
            del options[at : at + 2]
    return taken


def mounts_of(step: Step) -> Iterator[str]:
    """Yield the mounts of a step's container, as SOURCE:TARGET."""
    job, test = step.job, step.job.test
    install = job.system["install_path"]
    yield f"{job.directory}:{RESULTS}"
    yield f"{install}:{INSTALLED}"
    yield f"{job.directory}:{job.directory}"
    yield from test.mounts
    for repository in test.repositories:
        name = repository_name(repository)
        place = repository.get("installed_path") or f"{install}/{name}"
        yield f"{place}:{repository.get('mount_as') or f'/git/{name}'}"
    yield from step.command.mounts
    topology = job.variables.get("NCCL_TOPO_FILE")
    if topology:
        yield f"{topology}:{topology}"


def nsys_of(test: TestDefinition) -> str:
    """Return the words of `[nsys]` that come before the command."""
    values: Mapping[str, Any] | None = test.nsys
    if not values:
        return ""
    parts = [values["nsys_binary"], values["task"]]
    for name, option in (("sample", "-s"), ("output", "-o"), ("trace", "-t")):
        parts += [option, values[name]] if values.get(name) else []
    for name in ("force_overwrite", "capture_range", "capture_range_end", "cuda_graph_trace", "gpu_metrics_devices"):
        value = values.get(name)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else value
            parts.append(f"--{name.replace('_', '-')}={text}")
    return words([*parts, *values["extra_args"]])


def _hook(step: Step) -> str:
    """A hook's command, with output files of its own. In a subshell an exit of a line before it ends the hook only."""
    files = [f"{step.job.directory}/std{end}.txt" for end in ("out", "err")]
    if step.command.in_script:
        command = f"{_command(step)} >{word(files[0])} 2>{word(files[1])}"
    else:
        output = [f"--{name}={_pattern(path)}" for name, path in zip(("output", "error"), files)]
        command = _command(step, [word(option) for option in output])
    return "\n".join(["(", *step.command.before, command, ")"]) if step.command.before else command


def _gate(step: Step) -> Iterator[str]:
    """A pre_test: the job ends here, as failed, if it does not pass."""
    test = step.job.test.name
    yield from (f"note begin pre_test {word(test)}", "gate=0", f"{_hook(step)} || gate=$?")
    if step.job.test.template == "NcclTest":
        yield f"grep -q 'Avg bus bandwidth' {word(step.job.directory / 'stdout.txt')} || gate=1"
    name = word(f"pre_test {test} failed: the test and post_test are skipped")
    yield from ('note end "$gate"', "if ((gate != 0)); then", f"  echo {name} >&2", "  exit 1", "fi")
