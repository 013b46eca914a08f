"""CloudAI's test templates: the arguments (`cmd_args`) of those that commands are generated for; the others by name.

Source: src/cloudai/workloads of github.com/NVIDIA/cloudai at 5b5c0f72; the fields of the guide of 2024 are in old.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from acceptance.cloudai.forms import (
    INVALID,
    Key,
    Schema,
    anything,
    boolean,
    choice,
    line,
    listing,
    mapping,
    matching,
    number,
    swept,
    table,
    text,
    whole,
)
from acceptance.cloudai.remarks import Spot, did_you_mean
from acceptance.cloudai.schema import GIT_REPOSITORY

NCCL_IMAGE_2024 = "nvcr.io/nvidia/pytorch:24.02-py3"  # the image of the guide of 2024, Step 1 and Step 3
_COLLECTIVES = (
    *("all_reduce", "all_gather", "alltoall", "alltoallv", "broadcast", "gather", "hypercube", "reduce"),
    *("reduce_scatter", "scatter", "sendrecv", "bisection"),
)
NCCL_PROGRAMS = tuple(f"{name}_perf{end}" for end in ("_mpi", "") for name in _COLLECTIVES)


@dataclass(frozen=True)
class Template:
    """A template. others: what becomes of keys that are not in `arguments`, see forms.table.

    fields: top-level fields of its tests that other templates have not. separate_values: an option of `extra_cmd_args`
    and its value are two words.
    """

    name: str
    arguments: Schema
    others: str = "error"
    fields: Schema = field(default_factory=dict)
    separate_values: bool = False


def _program(value: Any, spot: Spot) -> Any:
    value = line(value, spot)
    if value is INVALID:
        return value
    name = value.rsplit("/", 1)[-1] if value.startswith("/") else value
    if name not in NCCL_PROGRAMS:
        hint = did_you_mean(name, NCCL_PROGRAMS, "write all_reduce_perf_mpi")
        rule = "must be COLLECTIVE_perf_mpi, COLLECTIVE_perf, or the absolute path of such a program in the image"
        spot.error(value, rule, hint)
        return INVALID
    return value


def _numbers(**defaults: Any) -> dict[str, Key]:
    return {name: Key(swept(whole(0)), default=default) for name, default in defaults.items()}


_IMAGE = Key(line, True)
_SIZE = matching(r"\d+[BKMGTbkmgt]?", "must be a size in bytes, such as 128, 8M or 16G", 'write "8M"')

_NCCL = {
    "docker_image_url": _IMAGE,
    "subtest_name": Key(swept(_program), default="all_reduce_perf_mpi"),
    **_numbers(nthreads=1, ngpus=1),
    "minbytes": Key(swept(_SIZE), default="32M"),
    "maxbytes": Key(swept(_SIZE), default="32M"),
    "stepbytes": Key(swept(_SIZE), default="1M"),
    "op": Key(swept(choice("sum", "prod", "min", "max", "avg", "all")), default="sum"),
    "datatype": Key(swept(choice("float", "uint8")), default="float"),
    **_numbers(root=0, iters=20, warmup_iters=5, agg_iters=1, average=1, parallel_init=0, check=1, blocking=0),
    **_numbers(cudagraph=0),
    "stepfactor": Key(swept(whole(1))),
    "use_deepep_matrix": Key(boolean, default=False),
    "alltoallv_matrix_container_path": Key(line, default="/tmp/traffic_matrix.txt"),  # noqa: S108 (in the container)
    "min_busbw": Key(number),
}
_UCC_COLLECTIVES = (
    *("allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "barrier", "bcast", "gather", "gatherv"),
    *("reduce", "reduce_scatter", "reduce_scatterv", "scatter", "scatterv", "memcpy", "reducedt", "reducedt_strided"),
)
_UCC = {
    "docker_image_url": _IMAGE,
    "collective": Key(swept(choice(*_UCC_COLLECTIVES)), default="alltoall"),
    "b": Key(swept(whole(0)), default=1),
    "e": Key(swept(_SIZE), default="8M"),
    "gen": Key(swept(line)),
    "use_deepep_matrix": Key(boolean, default=False),
}
_CHAKRA = {
    "docker_image_url": _IMAGE,
    "mpi": Key(line, default="pmix"),
    "trace_type": Key(line, default="et"),
    "trace_path": Key(line),
    "num_replays": Key(whole(1), default=1),
}
# Tables of NeMo: known keys with their defaults, any other key is passed on to Hydra or NeMo-Run.
_TRAINER = {
    "max_steps": Key(swept(whole(1)), default=20),
    "val_check_interval": Key(swept(number), default=10),
    "log_every_n_steps": Key(swept(whole(1)), default=1),
    "enable_checkpointing": Key(swept(boolean), default=False),
}
_MODEL = {
    **_numbers(global_batch_size=128, micro_batch_size=2, tensor_model_parallel_size=4),
    **_numbers(pipeline_model_parallel_size=4),
    "data": Key(
        table({"data_prefix": Key(text, default="[]"), "data_impl": Key(text, default="mock")}, "free"), default={}
    ),
}
_TRAINING = {
    "values": Key(line, default="gpt3/40b_improved"),
    "exp_manager": Key(table({"create_checkpoint_callback": Key(boolean, default=False)}, "free"), default={}),
    "trainer": Key(table(_TRAINER, "free"), default={}),
    "model": Key(table(_MODEL, "free"), default={}),
    "run": Key(
        table({"time_limit": Key(line, default="3:00:00"), "name": Key(line, default="run")}, "free"), default={}
    ),
}
_NEMO_LAUNCHER = {
    "launcher_script": Key(line, default="launcher_scripts/main.py"),
    "docker_image_url": Key(line, default="nvcr.io/nvidia/nemo:24.12.01"),
    "stages": Key(text, default='["training"]'),
    "numa_mapping": Key(table({"enable": Key(boolean, default=True)}, "free"), default={}),
    "cluster": Key(table({"gpus_per_node": Key(whole(1), default=8)}, "free"), default={}),
    "training": Key(table(_TRAINING, "free"), default={}),
}
LAUNCHER_REPOSITORY = {
    "url": "https://github.com/NVIDIA/NeMo-Framework-Launcher.git",
    "commit": "599ecfcbbd64fd2de02f2cc093b1610d73854022",
}
_STRATEGY = {
    **_numbers(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, context_parallel_size=2),
    "virtual_pipeline_model_parallel_size": Key(swept(whole(1))),
}
_RUN_TRAINER = {
    "max_steps": Key(swept(whole(1)), default=100),
    "val_check_interval": Key(swept(number), default=1000),
    "num_nodes": Key(whole(1)),
    "strategy": Key(table(_STRATEGY, "free"), default={}),
    "plugins": Key(table({}, "free")),
    "callbacks": Key(swept(text)),
    "log_every_n_steps": Key(whole(1), default=1),
}
_NEMO_RUN = {
    "docker_image_url": _IMAGE,
    "task": Key(line, True),
    "recipe_name": Key(line, True),
    "num_layers": Key(whole(1)),
    "trainer": Key(table(_RUN_TRAINER, "free"), default={}),
    "log": Key(table({}, "free"), default={}),
    "data": Key(table(_numbers(seq_length=8192, micro_batch_size=1, global_batch_size=1), "free"), default={}),
    "optim": Key(table({}, "free"), default={}),
}


def _flags(**defaults: Any) -> dict[str, Key]:
    """The keys of a table of JaxToolbox; the form of each follows from its default."""
    forms = {bool: boolean, int: whole(0), float: number, str: text}
    return {name: Key(swept(forms[type(default)]), default=default) for name, default in defaults.items()}


_FDL = _flags(
    checkpoint_policy="save_nothing",
    dcn_mesh_shape="'[1, 1, 1]'",
    fprop_dtype="bfloat16",
    ici_mesh_shape="'[1, 8, 1]'",
    max_steps=20,
    num_gpus=64,
    num_microbatches=1,
    num_stages=1,
    percore_batch_size=4.0,
    use_fp8=1,
    use_repeated_layer=False,
)
_GROK_FDL = {
    **_FDL,
    **_flags(
        checkpoint_policy="save_iteration_input",
        combine_qkv=False,
        dcn_mesh_shape="'[1, 8, 1, 1]'",
        dims_per_head=128,
        hidden_dims=32768,
        ici_mesh_shape="'[1, 1, 8, 1]'",
        max_seq_len=8192,
        model_dims=6144,
        num_experts=8,
        num_groups=64,
        num_heads=48,
        num_kv_heads=8,
        num_layers=64,
        percore_batch_size=1.0,
        use_expert_parallel=True,
        use_te_dpa=True,
        vocab_size=131072,
    ),
}
_NEMOTRON_FDL = {
    **_FDL,
    **_flags(
        checkpoint_policy="save_dot_except_logits_ffn1",
        num_layers=2,
        num_gpus=8,
        percore_batch_size=0.25,
        use_repeated_layer=True,
    ),
}
_XLA = _flags(
    xla_disable_hlo_passes="rematerialization",
    xla_dump_hlo_pass_re=".*",  # noqa: S106  (a pattern of XLA)
    xla_gpu_enable_all_gather_combine_by_dim=False,
    xla_gpu_enable_highest_priority_async_stream=True,
    xla_gpu_enable_latency_hiding_scheduler=True,
    xla_gpu_enable_pipelined_all_gather=True,
    xla_gpu_enable_pipelined_all_reduce=True,
    xla_gpu_enable_pipelined_reduce_scatter=True,
    xla_gpu_enable_reduce_scatter_combine_by_dim=False,
    xla_gpu_enable_triton_gemm=False,
    xla_gpu_enable_triton_softmax_fusion=False,
    xla_gpu_enable_while_loop_double_buffering=True,
    xla_gpu_graph_level=0,
)
_PERF_XLA = {
    **_XLA,
    **_flags(
        combine_threshold_bytes=301989888,
        xla_gpu_run_post_layout_collective_pipeliner=False,
        xla_gpu_use_memcpy_local_p2p=False,
        xla_gpu_pgle_profile_file_or_directory_path="/opt/paxml/workspace/pgle_output_profile.pbtxt",
    ),
}
_PROFILE_XLA = {
    **_XLA,
    **_flags(
        xla_gpu_disable_async_collectives="ALLREDUCE,ALLGATHER,REDUCESCATTER,COLLECTIVEBROADCAST,ALLTOALL,"
        "COLLECTIVEPERMUTE",
        xla_gpu_run_post_layout_collective_pipeliner=False,
        xla_gpu_enable_latency_hiding_scheduler=False,
    ),
}
_SETUP = {
    "docker_workspace_dir": Key(line, default="/opt/paxml/workspace/"),
    "enable_checkpoint_saving": Key(boolean, default=False),
    "gpus_per_node": Key(whole(1), default=8),
    "mpi": Key(line, default="pmix"),
    "num_nodes": Key(whole(1), default=8),
    "tfds_data_dir": Key(line, default="/opt/dataset"),
}
_JAX = {"docker_image_url": _IMAGE, "load_container": Key(boolean, default=True), "output_path": Key(line)}
_GPT_XLA = {
    **_XLA,
    **_flags(xla_gpu_all_reduce_combine_threshold_bytes=447741952, xla_gpu_enable_while_loop_double_buffering=False),
}
_GPT = {
    **_JAX,
    "fdl_config": Key(line, True),
    "fdl": Key(table({**_FDL, **_flags(num_groups=64)}), default={}),
    "xla_flags": Key(table(_GPT_XLA), default={}),
    "setup_flags": Key(
        table(
            {
                **_SETUP,
                "gpt_vocab_path": Key(line, default="gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"),
            }
        ),
        default={},
    ),
}
_GROK = {
    **_JAX,
    "fdl": Key(table(_GROK_FDL), default={}),
    "fdl_config": Key(line, default="paxml.tasks.lm.params.nvidia.Grok_Proxy"),
    "enable_pgle": Key(boolean, default=True),
    "setup_flags": Key(table(_SETUP), default={}),
    "profile": Key(table(_PROFILE_XLA), default={}),
    "perf": Key(table(_PERF_XLA), default={}),
}
_NEMOTRON_XLA = {
    **_XLA,
    **_flags(
        xla_gpu_all_gather_combine_threshold_bytes=3221225472,
        xla_gpu_all_reduce_combine_threshold_bytes=3221225472,
        xla_gpu_reduce_scatter_combine_threshold_bytes=6291456,
    ),
}
_NEMOTRON = {
    **_GROK,
    "fdl": Key(table(_NEMOTRON_FDL), default={}),
    "setup_flags": Key(table({**_SETUP, "vocab_path": Key(line, default="/mnt/vocab")}), default={}),
    "xla_flags": Key(table(_NEMOTRON_XLA), default={}),
}

_EXTRA_ARGUMENTS = Key(swept(text))
_REPOSITORY = Key(table(GIT_REPOSITORY))
_WORKLOAD = {
    "name": Key(line),
    "cmd": Key(line),
    "report_name": Key(line),
    "repo": _REPOSITORY,
    "args": Key(table({}, "free"), default={}),
    "extra_args": _EXTRA_ARGUMENTS,
}
_AIPERF = {
    **_WORKLOAD,
    "setup_cmd": Key(text),
    "artifact_dir_name": Key(line),
    "health_check_between_phases": Key(boolean),
    "continue_on_phase_failure": Key(boolean),
    "between_phase_cmd": Key(text),
}
_PHASE = {
    **_AIPERF,
    "name": Key(matching(r"[A-Za-z0-9_.-]+", "must be letters, digits, '_', '.', '-'", "rename it"), True),
}
_ACCURACY = {
    "name": Key(line, default="aiperf_accuracy"),
    "entrypoint": Key(line, default="aiperf profile"),
    "cli": Key(text, True),
    "setup_cmd": Key(text),
    "artifact_dir_name": Key(line, default="aiperf_accuracy_artifacts"),
}
_WORKER_ARGUMENTS = {
    "model": Key(line),
    "model_path": Key(line),
    "served_model_name": Key(line),
    "gpu_memory_utilization": Key(swept(number)),
    "pipeline_parallel_size": Key(swept(whole(1)), default=1),
    "tensor_parallel_size": Key(swept(whole(1)), default=1),
    "data_parallel_size": Key(swept(whole(1))),
}
_WORKER = {
    "cmd": Key(line, True),
    "worker_initialized_regex": Key(text, True),
    "multiple_workers_per_node": Key(boolean, default=False),
    "num_nodes": Key(swept(whole(0)), default=1),
    "nodes": Key(line),
    "args": Key(table(_WORKER_ARGUMENTS, "free"), default={}),
    "extra_args": _EXTRA_ARGUMENTS,
}
_INITIALIZED = "VllmWorker.*has.been.initialized"
_EXPORTER = {
    "enabled": Key(boolean, default=False),
    "docker_image_url": Key(line, default="nvcr.io/nvidia/k8s/dcgm-exporter:4.5.2-4.8.1-distroless"),
    "port": Key(whole(1, 65_535), default=9401),
}
_CONNECTOR = matching(
    r"(kvbm|lmcache|nixl|none)( (kvbm|lmcache|nixl|none))*", "must be kvbm, lmcache, nixl or none", 'write "nixl"'
)
_DYNAMO = {
    "model": Key(line, default="Qwen/Qwen3-0.6B"),
    "backend": Key(choice("vllm", "sglang", "sglang_dsr1"), default="vllm"),
    "endpoint": Key(line, default="v1/chat/completions"),
    "connector": Key(swept(_CONNECTOR)),
    "workspace_path": Key(line, default="/workspace"),
    "ingress_cmd": Key(line, default="python -m dynamo.frontend --router-mode kv"),
    "node_setup_cmd": Key(text, default="/usr/local/ucx/bin/ucx_info -d |grep Transport | sort -u;"),
    "port": Key(whole(1, 65_535), default=8000),
    "etcd_cmd": Key(line, default="etcd --log-level info --data-dir /tmp/etcd"),
    "etcd_port": Key(whole(1, 65_535), default=2379),
    "nats_cmd": Key(line, default="nats-server -js"),
    "nats_port": Key(whole(1, 65_535), default=4222),
    "dcgm_exporter": Key(table(_EXPORTER), default={}),
    "decode_worker": Key(
        table(_WORKER), default={"cmd": "python3 -m dynamo.vllm", "worker_initialized_regex": _INITIALIZED}
    ),
    "prefill_worker": Key(
        table(_WORKER),
        default={"cmd": "python3 -m dynamo.vllm --is-prefill-worker", "worker_initialized_regex": _INITIALIZED},
    ),
}
_AI_DYNAMO = {
    "docker_image_url": _IMAGE,
    "startup_cmd": Key(text),
    "startup_cmd_docker_image": Key(line),
    "storage_cache_dir": Key(swept(line), default="/tmp"),  # noqa: S108  (CloudAI's default, in the container)
    "dynamo": Key(table(_DYNAMO), True),
    "hicache": Key(mapping(anything)),
    "lmcache": Key(mapping(anything)),
    "lmcache_controller": Key(table({"cmd": Key(line, True)})),
    "genai_perf": Key(table(_WORKLOAD, "free"), default={}),
    "aiperf": Key(table(_AIPERF, "free"), default={}),
    "aiperf_phases": Key(listing(table(_PHASE, "free"))),
    "aiperf_accuracy": Key(table(_ACCURACY)),
    "workloads": Key(
        matching(
            r"(genai_perf|aiperf)[.]sh( *, *(genai_perf|aiperf)[.]sh)*",
            "must be genai_perf.sh, aiperf.sh, or both with a comma",
            'write "genai_perf.sh"',
        ),
        default="genai_perf.sh",
    ),
}
_CONSTRAINTS = {
    "prefill_tp_le_decode_tp": Key(boolean, default=True),
    "tp_times_pp_le_gpus_per_node": Key(boolean, default=True),
}
_DYNAMO_FIELDS = {
    "repo": _REPOSITORY,
    "constraints": Key(table(_CONSTRAINTS)),
    "success_marker": Key(line),
    "failure_marker": Key(line),
}

TEMPLATES = {
    template.name: template
    for template in (
        Template("NcclTest", _NCCL, "option", separate_values=True),
        Template(
            "SlurmContainer",
            {"docker_image_url": _IMAGE, "cmd": Key(text, True)},
            fields={"extra_srun_args": Key(listing(line)), "scripts": Key(listing(anything))},
            separate_values=True,
        ),
        Template("BashCmd", {"cmd": Key(text, True)}),
        Template(
            "Sleep",
            {"docker_image_url": Key(line, default="ubuntu:22.04"), "seconds": Key(swept(whole(0)), default=5)},
        ),
        Template("UCCTest", _UCC),
        Template("ChakraReplay", _CHAKRA, "option", separate_values=True),
        Template("NeMoLauncher", _NEMO_LAUNCHER, "option", {"launcher_repo": _REPOSITORY}),
        Template("NeMoRun", _NEMO_RUN, "option"),
        Template("JaxToolboxGPT", _GPT),
        Template("JaxToolboxGrok", _GROK),
        Template("JaxToolboxNemotron", _NEMOTRON),
        Template("AIDynamo", _AI_DYNAMO, fields=_DYNAMO_FIELDS),
    )
}
# Templates of head for which no command is generated here, and what they run.
REFUSED: Mapping[str, str] = {
    "Aiconfigurator": "a simulation on one machine without GPUs",
    "DDLBTest": "the benchmark ddlb",
    "DeepEP": "the benchmark of DeepEP",
    "DynamoMocker": "a simulation on one machine without GPUs",
    "Fio": "the program fio; `acceptance storage` measures storage",
    "MegatronBridge": "Megatron-Bridge's own launcher, which needs an account of Hugging Face",
    "MegatronRun": "a script of Megatron-LM",
    "MoEBenchmark": "the benchmark of mixtures of experts",
    "NIXLBench": "the benchmark nixlbench",
    "NIXLKVBench": "the benchmark kvbench",
    "NixlEP": "the benchmark of NIXL EP",
    "NixlPerftest": "the benchmark of NIXL",
    "OSUBench": "the OSU micro benchmarks",
    "TritonInference": "Triton's server and client",
    "sglang": "a server of SGLang",
    "vllm": "a server of vLLM",
}


def refusal(name: str) -> tuple[str, str] | None:
    """Return rule and hint for a template that no command is generated for; None for the others."""
    if name in TEMPLATES:
        return None
    known = {one.lower(): reason for one, reason in REFUSED.items()}
    if name.lower() in known:
        rule = f"is a template of CloudAI ({known[name.lower()]}) for which no command is generated here"
        return rule, "run it as SlurmContainer or BashCmd, or with CloudAI"
    plain = re.sub(r"[^a-z]", "", name.lower())
    near = next((one for one in TEMPLATES if one.lower() == plain), None)
    hint = f"did you mean {near}?" if near else did_you_mean(name, TEMPLATES, f"one of {', '.join(TEMPLATES)}")
    return "is not a template of CloudAI", hint
