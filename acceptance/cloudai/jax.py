"""What the three templates of JaxToolbox run: paxml in the container, first with a profiler and then measured.

Source: as in template_commands.py, workloads/jax_toolbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acceptance.cloudai.shell import lines, word, words
from acceptance.cloudai.template_commands import Command, CommandError, Job, image_of, option_words

_COMMAND = '"${command[@]}"'
_FIRST = "[[ $SLURM_NODEID == 0 && $SLURM_PROCID == 0 ]]"


def jax_toolbox(job: Job) -> Command:
    """Load the container, then start run.sh in it, which has the two stages."""
    arguments, setup = job.test.arguments, job.test.arguments["setup_flags"]
    workspace = setup["docker_workspace_dir"]
    threshold = job.variables.get("COMBINE_THRESHOLD", "")
    if not threshold.isdigit():
        raise CommandError('extra_env_vars.COMBINE_THRESHOLD is needed: a number of bytes, such as "301989888"')
    environment = {"PER_GPU_COMBINE_THRESHOLD": str(int(threshold) // (setup["gpus_per_node"] * job.nodes.count))}
    image = image_of(job, arguments["docker_image_url"])
    load = ["srun --mpi=none", word(f"--container-image={image}"), "--container-name=cont true"]
    suffix = "-%j.txt" if job.variables.get("UNIFIED_STDOUT_STDERR") == "1" else "-%j-%n-%t.txt"
    options = (f"--output={job.directory}/output{suffix}", f"--error={job.directory}/error{suffix}")
    return Command(
        word(f"{workspace.rstrip('/')}/run.sh"),
        image,
        mpi="none",
        options=options,
        mounts=(f"{job.directory}:{workspace}",),
        environment=environment,
        before=(lines(load),) if arguments["load_container"] else (),
        files={"run.sh": _script(job)},
        container="--container-name=cont" if arguments["load_container"] else None,
    )


def _script(job: Job) -> str:
    profiled = job.test.arguments.get("enable_pgle", True)
    stages = ["profile", "perf"] if profiled else ["perf"]
    head = ["#!/bin/bash", "# The stages of a JaxToolbox test, as one task in the container.", "set -u"]
    parts = [*head, "command=(", *(f"  {part}" for part in _python(job)), ")", "code=0"]
    parts += [line for stage in stages for line in _stage(job, stage, profiled)]
    return "\n".join([*parts, 'exit "$code"']) + "\n"


def _stage(job: Job, stage: str, profiled: bool) -> list[str]:
    workspace = job.test.arguments["setup_flags"]["docker_workspace_dir"].rstrip("/")
    trace = f"{workspace}/nsys_profile_{stage}"
    nsys = [
        "nsys profile -s none",
        word(f"--output={trace}"),
        "--force-overwrite true",
        "--capture-range=cudaProfilerApi",
    ]
    nsys += ["--capture-range-end=stop", "--cuda-graph-trace=node"]
    log = f"{word(workspace)}/profile_stderr_${{SLURM_PROCID}}.txt"
    output = f" >>{log} 2>&1" if stage == "profile" else ""
    converter = ["python /opt/jax/jax/tools/pgo_nsys_converter.py", word(f"--profile_path={trace}.nsys-rep")]
    converter += ["--post_process", word(f"--pgle_output_path={workspace}/pgle_output_{stage}.pbtxt")]
    return [
        "",
        f"# stage: {stage}",
        f"export XLA_FLAGS={word(_xla_flags(job.test.arguments, stage, profiled))}",
        f"if {_FIRST}; then",
        f"  {lines([*nsys, _COMMAND], '    ')}{output} || code=$?",
        f"  {lines(converter, '    ')} >/dev/null 2>&1",
        "else",
        f"  {_COMMAND}{output} || code=$?",
        "fi",
    ]


def _xla_flags(arguments: Mapping[str, Any], stage: str, profiled: bool) -> str:
    flags = {**arguments.get("xla_flags", {}), **arguments.get(stage, {})}
    if not profiled:
        flags["xla_gpu_pgle_profile_file_or_directory_path"] = ""
    kinds = ("all_reduce", "all_gather", "reduce_scatter")
    for kind in kinds:
        variable = "PER_GPU_COMBINE_THRESHOLD" if kind == "reduce_scatter" else "COMBINE_THRESHOLD"
        flags.setdefault(f"xla_gpu_{kind}_combine_threshold_bytes", f"${variable}")
    texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in flags.items()}
    return " ".join(sorted(f"--{name}={text}" for name, text in texts.items() if name.startswith("xla_")))


def _python(job: Job) -> list[str]:
    arguments, setup = job.test.arguments, job.test.arguments["setup_flags"]
    parts = [
        "python3 -u -m paxml.main",
        '--num_hosts="$SLURM_NTASKS"',
        '--server_addr="$SLURM_JOB_MASTER_NODE:12345"',
        '--host_idx="$SLURM_PROCID"',
        word(f"--job_log_dir={setup['docker_workspace_dir']}"),
        word(f"--tfds_data_dir={setup['tfds_data_dir']}"),
        f"--enable_checkpoint_saving={setup['enable_checkpoint_saving']}",
        "--multiprocess_gpu",
        "--alsologtostderr",
        word(f"--fdl_config={arguments['fdl_config']}"),
    ]
    quoted = ("checkpoint_policy", "fprop_dtype")  # paxml reads these as Python's texts
    for name, value in sorted(arguments["fdl"].items()):
        text = str(value).strip("'\\\"")
        parts.append(word(f'--fdl.{name.upper()}="{text}"' if name in quoted else f"--fdl.{name.upper()}={text}"))
    return parts + ([words(option_words(job.test))] if job.test.options else [])
