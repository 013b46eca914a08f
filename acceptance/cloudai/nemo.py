"""What NeMoLauncher and NeMoRun run.

Source: as in template_commands.py, workloads/nemo_launcher and workloads/nemo_run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from acceptance.cloudai.shell import lines, word, words
from acceptance.cloudai.template_commands import INSTALLED, Command, CommandError, Job, image_of, option_words
from acceptance.cloudai.templates import LAUNCHER_REPOSITORY

RUN_SCRIPT = "cloudai_nemorun.py"  # CloudAI's own, in install_path


def flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables with dotted names."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def repository_name(repository: Mapping[str, Any]) -> str:
    """Return the folder of a repository in install_path: NAME__COMMIT."""
    name = str(repository["url"]).rsplit("/", 1)[-1]
    return f"{name[:-4] if name.endswith('.git') else name}__{repository['commit']}"


def nemo_launcher(job: Job) -> Command:
    """The launcher runs on the head node and submits a job itself."""
    arguments, system = dict(job.test.arguments), job.system
    values = dict(flat({name: value for name, value in arguments.items() if name != "launcher_script"}))
    values["container"] = image_of(job, values.pop("docker_image_url"))
    values["training"] = values.pop("training.values")
    data = values.get("training.model.data.data_prefix", "[]")
    values["training.model.data.data_prefix"] = data.replace("\\", "")
    if values.get("training.model.data.data_impl") != "mock" and data == "[]":
        raise CommandError("cmd_args.training.model.data.data_prefix is empty, and data_impl is not mock")
    values["cluster.partition"] = system["default_partition"]
    values["cluster.gpus_per_node"] = system.get("gpus_per_node", "null")
    values["cluster.job_name_prefix"] = f"{system['account']}-" if system.get("account") else ""
    values["training.trainer.num_nodes"] = job.nodes.count
    values["base_results_dir"] = str(job.directory)
    repository = f"{system['install_path']}/{repository_name(job.test.other.get('launcher_repo', LAUNCHER_REPOSITORY))}"
    script = f"{repository}/{arguments['launcher_script']}"
    values["launcher_scripts_path"] = script.rsplit("/", 1)[0]
    if system.get("account"):
        values["cluster.account"] = system["account"]
    mounts = [values.get("training.model.tokenizer.model"), job.variables.get("NCCL_TOPO_FILE")]
    pairs = [f'"{path}:{path}"' for path in mounts if path]
    if pairs:
        values["container_mounts"] = f"[{', '.join(pairs)}]"
    parts = [f"{word(repository + '-venv/bin/python')} {word(script)}"]
    parts += [word(f"{name}={_plain(value)}") for name, value in sorted(values.items())]
    parts += [word(f"+env_vars.{name}={_hydra(value)}") for name, value in job.variables.items()]
    if job.nodes.names:
        parts.append(word(f"+cluster.nodelist={_hydra(','.join(job.nodes.names))}"))
    parts += [words(option_words(job.test))] if job.test.options else []
    return Command(lines(parts), by_launcher=True)


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _hydra(value: str) -> str:
    """Return a quoted value of Hydra's grammar, in which a comma would begin another value."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def nemo_run(job: Job) -> Command:
    """CloudAI's script for NeMo-Run, with the recipe and its changed values."""
    arguments = {**job.test.arguments, "trainer": dict(job.test.arguments["trainer"])}
    trainer, data = arguments["trainer"], arguments["data"]
    trainer["num_nodes"] = job.nodes.count
    if job.system.get("gpus_per_node"):
        trainer["devices"] = job.system["gpus_per_node"]
    arguments["data"] = {**data, "num_train_samples": data["global_batch_size"] * trainer["max_steps"]}
    known = ("docker_image_url", "num_layers", "task", "recipe_name")
    parts = ["python", f"{INSTALLED}/{RUN_SCRIPT}", "--factory", arguments["recipe_name"], "-y"]
    values = flat({name: value for name, value in arguments.items() if name not in known})
    parts += [f"{name}={value}" for name, value in values if value is not None]
    variables = job.variables
    environment = {"CLOUDAI_NEMO_TASK": arguments["task"], "CLOUDAI_NEMO_RECIPE": arguments["recipe_name"]}
    environment["NEMO_LOG_MEMORY_USAGE"] = variables.get("NEMO_LOG_MEMORY_USAGE", "1")
    if trainer["strategy"]["pipeline_model_parallel_size"] > 1:
        environment["NCCL_P2P_NET_CHUNKSIZE"] = "2097152"
    if variables.get("CLOUDAI_ENABLE_FSDP") == "1":
        environment["CLOUDAI_DISABLE_TP_COMM_OVERLAP"] = "1"
    text = words([*parts, *option_words(job.test)])
    if variables.get("ENABLE_NUMA_CONTROL") == "1":
        half = f"$((SLURM_LOCALID/{2 if variables.get('CLOUDAI_GPU_TYPE') == 'gb200' else 4}))"
        text = f"numactl --cpunodebind={half} --membind={half} {text}"
    image = image_of(job, arguments["docker_image_url"])
    return Command(text, image, mounts=(f"{job.system['install_path']}:/cloudai_workspace",), environment=environment)


def nemo_run_skips(arguments: Mapping[str, Any], nodes: int) -> str | None:
    """Return why a point of a sweep cannot run on `nodes` nodes of 8 GPUs; None if it can."""
    strategy, data = arguments["trainer"]["strategy"], arguments["data"]
    tensor, pipeline = strategy["tensor_model_parallel_size"], strategy["pipeline_model_parallel_size"]
    split, gpus = tensor * pipeline * strategy["context_parallel_size"], nodes * 8
    if gpus % split:
        return f"{gpus} GPUs cannot be divided into groups of {split} (tensor x pipeline x context)"
    virtual, layers = strategy.get("virtual_pipeline_model_parallel_size"), arguments.get("num_layers")
    if virtual and layers and layers // pipeline % virtual:
        return (
            f"{layers} layers in {pipeline} stages cannot be divided by virtual_pipeline_model_parallel_size {virtual}"
        )
    batch = data["micro_batch_size"] * (gpus // split)
    if data["global_batch_size"] % batch:
        return f"global_batch_size {data['global_batch_size']} is no multiple of {batch}"
    return None
