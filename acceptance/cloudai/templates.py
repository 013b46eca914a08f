"""CloudAI's test templates: the arguments (`cmd_args`) of those that commands are generated for; the others by name.

Source: src/cloudai/workloads of github.com/NVIDIA/cloudai at 5b5c0f72; the fields of the guide of 2024 are in old.py.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from acceptance.cloudai import forms
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
    and its value are two words. own: command, success, figures and file of an own template, see own.py.
    """

    name: str
    arguments: forms.Schema
    others: str = "error"
    fields: forms.Schema = field(default_factory=dict)
    separate_values: bool = False
    own: Mapping[str, Any] | None = None


def _program(value: Any, spot: Spot) -> Any:
    value = forms.line(value, spot)
    if value is forms.INVALID:
        return value
    name = value.rsplit("/", 1)[-1] if value.startswith("/") else value
    if name not in NCCL_PROGRAMS:
        hint = did_you_mean(name, NCCL_PROGRAMS, "write all_reduce_perf_mpi")
        rule = "must be COLLECTIVE_perf_mpi, COLLECTIVE_perf, or the absolute path of such a program in the image"
        spot.error(value, rule, hint)
        return forms.INVALID
    return value


def _numbers(**defaults: Any) -> dict[str, forms.Key]:
    return {name: forms.Key(forms.swept(forms.whole(0)), default=default) for name, default in defaults.items()}


_IMAGE = forms.Key(forms.line, True)
_SIZE = forms.matching(r"\d+[BKMGTbkmgt]?", "must be a size in bytes, such as 128, 8M or 16G", 'write "8M"')

_NCCL = {
    "docker_image_url": _IMAGE,
    "subtest_name": forms.Key(forms.swept(_program), default="all_reduce_perf_mpi"),
    **_numbers(nthreads=1, ngpus=1),
    "minbytes": forms.Key(forms.swept(_SIZE), default="32M"),
    "maxbytes": forms.Key(forms.swept(_SIZE), default="32M"),
    "stepbytes": forms.Key(forms.swept(_SIZE), default="1M"),
    "op": forms.Key(forms.swept(forms.choice("sum", "prod", "min", "max", "avg", "all")), default="sum"),
    "datatype": forms.Key(forms.swept(forms.choice("float", "uint8")), default="float"),
    **_numbers(root=0, iters=20, warmup_iters=5, agg_iters=1, average=1, parallel_init=0, check=1, blocking=0),
    **_numbers(cudagraph=0),
    "stepfactor": forms.Key(forms.swept(forms.whole(1))),
    "use_deepep_matrix": forms.Key(forms.boolean, default=False),
    "alltoallv_matrix_container_path": forms.Key(forms.line, default="/tmp/traffic_matrix.txt"),  # noqa: S108 (in the container)
    "min_busbw": forms.Key(forms.number),
}
_UCC_COLLECTIVES = (
    *("allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "barrier", "bcast", "gather", "gatherv"),
    *("reduce", "reduce_scatter", "reduce_scatterv", "scatter", "scatterv", "memcpy", "reducedt", "reducedt_strided"),
)
_UCC = {
    "docker_image_url": _IMAGE,
    "collective": forms.Key(forms.swept(forms.choice(*_UCC_COLLECTIVES)), default="alltoall"),
    "b": forms.Key(forms.swept(forms.whole(0)), default=1),
    "e": forms.Key(forms.swept(_SIZE), default="8M"),
    "gen": forms.Key(forms.swept(forms.line)),
    "use_deepep_matrix": forms.Key(forms.boolean, default=False),
}
_CHAKRA = {
    "docker_image_url": _IMAGE,
    "mpi": forms.Key(forms.line, default="pmix"),
    "trace_type": forms.Key(forms.line, default="et"),
    "trace_path": forms.Key(forms.line),
    "num_replays": forms.Key(forms.whole(1), default=1),
}
# Tables of NeMo: known keys with their defaults, any other key is passed on to Hydra or NeMo-Run.
_TRAINER = {
    "max_steps": forms.Key(forms.swept(forms.whole(1)), default=20),
    "val_check_interval": forms.Key(forms.swept(forms.number), default=10),
    "log_every_n_steps": forms.Key(forms.swept(forms.whole(1)), default=1),
    "enable_checkpointing": forms.Key(forms.swept(forms.boolean), default=False),
}
_MODEL = {
    **_numbers(global_batch_size=128, micro_batch_size=2, tensor_model_parallel_size=4),
    **_numbers(pipeline_model_parallel_size=4),
    "data": forms.Key(
        forms.table(
            {"data_prefix": forms.Key(forms.text, default="[]"), "data_impl": forms.Key(forms.text, default="mock")},
            "free",
        ),
        default={},
    ),
}
_TRAINING = {
    "values": forms.Key(forms.line, default="gpt3/40b_improved"),
    "exp_manager": forms.Key(
        forms.table({"create_checkpoint_callback": forms.Key(forms.boolean, default=False)}, "free"), default={}
    ),
    "trainer": forms.Key(forms.table(_TRAINER, "free"), default={}),
    "model": forms.Key(forms.table(_MODEL, "free"), default={}),
    "run": forms.Key(
        forms.table(
            {"time_limit": forms.Key(forms.line, default="3:00:00"), "name": forms.Key(forms.line, default="run")},
            "free",
        ),
        default={},
    ),
}
_NEMO_LAUNCHER = {
    "launcher_script": forms.Key(forms.line, default="launcher_scripts/main.py"),
    "docker_image_url": forms.Key(forms.line, default="nvcr.io/nvidia/nemo:24.12.01"),
    "stages": forms.Key(forms.text, default='["training"]'),
    "numa_mapping": forms.Key(forms.table({"enable": forms.Key(forms.boolean, default=True)}, "free"), default={}),
    "cluster": forms.Key(forms.table({"gpus_per_node": forms.Key(forms.whole(1), default=8)}, "free"), default={}),
    "training": forms.Key(forms.table(_TRAINING, "free"), default={}),
}
LAUNCHER_REPOSITORY = {
    "url": "https://github.com/NVIDIA/NeMo-Framework-Launcher.git",
    "commit": "599ecfcbbd64fd2de02f2cc093b1610d73854022",
}
_STRATEGY = {
    **_numbers(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, context_parallel_size=2),
    "virtual_pipeline_model_parallel_size": forms.Key(forms.swept(forms.whole(1))),
}
_RUN_TRAINER = {
    "max_steps": forms.Key(forms.swept(forms.whole(1)), default=100),
    "val_check_interval": forms.Key(forms.swept(forms.number), default=1000),
    "num_nodes": forms.Key(forms.whole(1)),
    "strategy": forms.Key(forms.table(_STRATEGY, "free"), default={}),
    "plugins": forms.Key(forms.table({}, "free")),
    "callbacks": forms.Key(forms.swept(forms.text)),
    "log_every_n_steps": forms.Key(forms.whole(1), default=1),
}
_NEMO_RUN = {
    "docker_image_url": _IMAGE,
    "task": forms.Key(forms.line, True),
    "recipe_name": forms.Key(forms.line, True),
    "num_layers": forms.Key(forms.whole(1)),
    "trainer": forms.Key(forms.table(_RUN_TRAINER, "free"), default={}),
    "log": forms.Key(forms.table({}, "free"), default={}),
    "data": forms.Key(
        forms.table(_numbers(seq_length=8192, micro_batch_size=1, global_batch_size=1), "free"), default={}
    ),
    "optim": forms.Key(forms.table({}, "free"), default={}),
}


def _flags(**defaults: Any) -> dict[str, forms.Key]:
    """The keys of a table of JaxToolbox; the form of each follows from its default."""
    of_type = {bool: forms.boolean, int: forms.whole(0), float: forms.number, str: forms.text}
    return {name: forms.Key(forms.swept(of_type[type(default)]), default=default) for name, default in defaults.items()}


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
    "docker_workspace_dir": forms.Key(forms.line, default="/opt/paxml/workspace/"),
    "enable_checkpoint_saving": forms.Key(forms.boolean, default=False),
    "gpus_per_node": forms.Key(forms.whole(1), default=8),
    "mpi": forms.Key(forms.line, default="pmix"),
    "num_nodes": forms.Key(forms.whole(1), default=8),
    "tfds_data_dir": forms.Key(forms.line, default="/opt/dataset"),
}
_JAX = {
    "docker_image_url": _IMAGE,
    "load_container": forms.Key(forms.boolean, default=True),
    "output_path": forms.Key(forms.line),
}
_GPT_XLA = {
    **_XLA,
    **_flags(xla_gpu_all_reduce_combine_threshold_bytes=447741952, xla_gpu_enable_while_loop_double_buffering=False),
}
_GPT = {
    **_JAX,
    "fdl_config": forms.Key(forms.line, True),
    "fdl": forms.Key(forms.table({**_FDL, **_flags(num_groups=64)}), default={}),
    "xla_flags": forms.Key(forms.table(_GPT_XLA), default={}),
    "setup_flags": forms.Key(
        forms.table(
            {
                **_SETUP,
                "gpt_vocab_path": forms.Key(
                    forms.line, default="gs://t5-data/vocabs/cc_all.32000.100extra/sentencepiece.model"
                ),
            }
        ),
        default={},
    ),
}
_GROK = {
    **_JAX,
    "fdl": forms.Key(forms.table(_GROK_FDL), default={}),
    "fdl_config": forms.Key(forms.line, default="paxml.tasks.lm.params.nvidia.Grok_Proxy"),
    "enable_pgle": forms.Key(forms.boolean, default=True),
    "setup_flags": forms.Key(forms.table(_SETUP), default={}),
    "profile": forms.Key(forms.table(_PROFILE_XLA), default={}),
    "perf": forms.Key(forms.table(_PERF_XLA), default={}),
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
    "fdl": forms.Key(forms.table(_NEMOTRON_FDL), default={}),
    "setup_flags": forms.Key(
        forms.table({**_SETUP, "vocab_path": forms.Key(forms.line, default="/mnt/vocab")}), default={}
    ),
    "xla_flags": forms.Key(forms.table(_NEMOTRON_XLA), default={}),
}

_EXTRA_ARGUMENTS = forms.Key(forms.swept(forms.text))
_REPOSITORY = forms.Key(forms.table(GIT_REPOSITORY))
_WORKLOAD = {
    "name": forms.Key(forms.line),
    "cmd": forms.Key(forms.line),
    "report_name": forms.Key(forms.line),
    "repo": _REPOSITORY,
    "args": forms.Key(forms.table({}, "free"), default={}),
    "extra_args": _EXTRA_ARGUMENTS,
}
_AIPERF = {
    **_WORKLOAD,
    "setup_cmd": forms.Key(forms.text),
    "artifact_dir_name": forms.Key(forms.line),
    "health_check_between_phases": forms.Key(forms.boolean),
    "continue_on_phase_failure": forms.Key(forms.boolean),
    "between_phase_cmd": forms.Key(forms.text),
}
_PHASE = {
    **_AIPERF,
    "name": forms.Key(forms.matching(r"[A-Za-z0-9_.-]+", "must be letters, digits, '_', '.', '-'", "rename it"), True),
}
_ACCURACY = {
    "name": forms.Key(forms.line, default="aiperf_accuracy"),
    "entrypoint": forms.Key(forms.line, default="aiperf profile"),
    "cli": forms.Key(forms.text, True),
    "setup_cmd": forms.Key(forms.text),
    "artifact_dir_name": forms.Key(forms.line, default="aiperf_accuracy_artifacts"),
}
_WORKER_ARGUMENTS = {
    "model": forms.Key(forms.line),
    "model_path": forms.Key(forms.line),
    "served_model_name": forms.Key(forms.line),
    "gpu_memory_utilization": forms.Key(forms.swept(forms.number)),
    "pipeline_parallel_size": forms.Key(forms.swept(forms.whole(1)), default=1),
    "tensor_parallel_size": forms.Key(forms.swept(forms.whole(1)), default=1),
    "data_parallel_size": forms.Key(forms.swept(forms.whole(1))),
}
_WORKER = {
    "cmd": forms.Key(forms.line, True),
    "worker_initialized_regex": forms.Key(forms.text, True),
    "multiple_workers_per_node": forms.Key(forms.boolean, default=False),
    "num_nodes": forms.Key(forms.swept(forms.whole(0)), default=1),
    "nodes": forms.Key(forms.line),
    "args": forms.Key(forms.table(_WORKER_ARGUMENTS, "free"), default={}),
    "extra_args": _EXTRA_ARGUMENTS,
}
_INITIALIZED = "VllmWorker.*has.been.initialized"
_EXPORTER = {
    "enabled": forms.Key(forms.boolean, default=False),
    "docker_image_url": forms.Key(forms.line, default="nvcr.io/nvidia/k8s/dcgm-exporter:4.5.2-4.8.1-distroless"),
    "port": forms.Key(forms.whole(1, 65_535), default=9401),
}
_CONNECTOR = forms.matching(
    r"(kvbm|lmcache|nixl|none)( (kvbm|lmcache|nixl|none))*", "must be kvbm, lmcache, nixl or none", 'write "nixl"'
)
_DYNAMO = {
    "model": forms.Key(forms.line, default="Qwen/Qwen3-0.6B"),
    "backend": forms.Key(forms.choice("vllm", "sglang", "sglang_dsr1"), default="vllm"),
    "endpoint": forms.Key(forms.line, default="v1/chat/completions"),
    "connector": forms.Key(forms.swept(_CONNECTOR)),
    "workspace_path": forms.Key(forms.line, default="/workspace"),
    "ingress_cmd": forms.Key(forms.line, default="python -m dynamo.frontend --router-mode kv"),
    "node_setup_cmd": forms.Key(forms.text, default="/usr/local/ucx/bin/ucx_info -d |grep Transport | sort -u;"),
    "port": forms.Key(forms.whole(1, 65_535), default=8000),
    "etcd_cmd": forms.Key(forms.line, default="etcd --log-level info --data-dir /tmp/etcd"),
    "etcd_port": forms.Key(forms.whole(1, 65_535), default=2379),
    "nats_cmd": forms.Key(forms.line, default="nats-server -js"),
    "nats_port": forms.Key(forms.whole(1, 65_535), default=4222),
    "dcgm_exporter": forms.Key(forms.table(_EXPORTER), default={}),
    "decode_worker": forms.Key(
        forms.table(_WORKER), default={"cmd": "python3 -m dynamo.vllm", "worker_initialized_regex": _INITIALIZED}
    ),
    "prefill_worker": forms.Key(
        forms.table(_WORKER),
        default={"cmd": "python3 -m dynamo.vllm --is-prefill-worker", "worker_initialized_regex": _INITIALIZED},
    ),
}
_AI_DYNAMO = {
    "docker_image_url": _IMAGE,
    "startup_cmd": forms.Key(forms.text),
    "startup_cmd_docker_image": forms.Key(forms.line),
    "storage_cache_dir": forms.Key(forms.swept(forms.line), default="/tmp"),  # noqa: S108  (CloudAI's default, in the container)
    "dynamo": forms.Key(forms.table(_DYNAMO), True),
    "hicache": forms.Key(forms.mapping(forms.anything)),
    "lmcache": forms.Key(forms.mapping(forms.anything)),
    "lmcache_controller": forms.Key(forms.table({"cmd": forms.Key(forms.line, True)})),
    "genai_perf": forms.Key(forms.table(_WORKLOAD, "free"), default={}),
    "aiperf": forms.Key(forms.table(_AIPERF, "free"), default={}),
    "aiperf_phases": forms.Key(forms.listing(forms.table(_PHASE, "free"))),
    "aiperf_accuracy": forms.Key(forms.table(_ACCURACY)),
    "workloads": forms.Key(
        forms.matching(
            r"(genai_perf|aiperf)[.]sh( *, *(genai_perf|aiperf)[.]sh)*",
            "must be genai_perf.sh, aiperf.sh, or both with a comma",
            'write "genai_perf.sh"',
        ),
        default="genai_perf.sh",
    ),
}
_CONSTRAINTS = {
    "prefill_tp_le_decode_tp": forms.Key(forms.boolean, default=True),
    "tp_times_pp_le_gpus_per_node": forms.Key(forms.boolean, default=True),
}
_DYNAMO_FIELDS = {
    "repo": _REPOSITORY,
    "constraints": forms.Key(forms.table(_CONSTRAINTS)),
    "success_marker": forms.Key(forms.line),
    "failure_marker": forms.Key(forms.line),
}

# The GPU suite's programs: options of docs/gpu-suite.md.
_SUITE = {"docker_image_url": forms.Key(forms.line), "quick": forms.Key(forms.boolean, default=False)}
_COUNT, _TEXT = forms.Key(forms.swept(forms.whole(1))), forms.swept(forms.line)
_RATE = forms.Key(forms.number)
_GPU_TEST = {**_SUITE, "stages": forms.Key(_TEXT), "stress_seconds": _COUNT}
_DDP_TEST = {
    **_SUITE,
    "all": forms.Key(forms.boolean, default=False),
    "sizes": forms.Key(_TEXT),
    "collectives": forms.Key(_TEXT),
    "iters": _COUNT,
    "timeout": _COUNT,
    "least_gb_per_s": _RATE,
}
_STORAGE_TEST = {
    **_SUITE,
    "directory": forms.Key(_TEXT, True),
    "size": forms.Key(_TEXT),
    "threads": _COUNT,
    "files": _COUNT,
    "least_write_gb_per_s": _RATE,
    "least_read_gb_per_s": _RATE,
}
TEMPLATES = {
    template.name: template
    for template in (
        Template("NcclTest", _NCCL, "option", separate_values=True),
        Template(
            "SlurmContainer",
            {"docker_image_url": _IMAGE, "cmd": forms.Key(forms.text, True)},
            fields={
                "extra_srun_args": forms.Key(forms.listing(forms.line)),
                "scripts": forms.Key(forms.listing(forms.anything)),
            },
            separate_values=True,
        ),
        Template("BashCmd", {"cmd": forms.Key(forms.text, True)}),
        Template(
            "Sleep",
            {
                "docker_image_url": forms.Key(forms.line, default="ubuntu:22.04"),
                "seconds": forms.Key(forms.swept(forms.whole(0)), default=5),
            },
        ),
        Template("UCCTest", _UCC),
        Template("ChakraReplay", _CHAKRA, "option", separate_values=True),
        Template("NeMoLauncher", _NEMO_LAUNCHER, "option", {"launcher_repo": _REPOSITORY}),
        Template("NeMoRun", _NEMO_RUN, "option"),
        Template("JaxToolboxGPT", _GPT),
        Template("JaxToolboxGrok", _GROK),
        Template("JaxToolboxNemotron", _NEMOTRON),
        Template("AIDynamo", _AI_DYNAMO, fields=_DYNAMO_FIELDS),
        Template("GpuTest", _GPU_TEST, separate_values=True),
        Template("DdpTest", _DDP_TEST, separate_values=True),
        Template("StorageTest", _STORAGE_TEST, separate_values=True),
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


def refusal(name: str, own: Collection[str] = ()) -> tuple[str, str] | None:
    """Return rule and hint for a template that no command is generated for; None for the others.

    own: the names of the own templates that were read.
    """
    if name in TEMPLATES:
        return None
    known = {one.lower(): reason for one, reason in REFUSED.items()}
    if name.lower() in known:
        rule = f"is a template of CloudAI ({known[name.lower()]}) for which no command is generated here"
        return rule, "run it as SlurmContainer or BashCmd, or with CloudAI"
    plain = re.sub(r"[^a-z]", "", name.lower())
    near = next((one for one in TEMPLATES if one.lower() == plain), None)
    known_names = [*TEMPLATES, *own]
    hint = f"did you mean {near}?" if near else did_you_mean(name, known_names, f"one of {', '.join(known_names)}")
    return "is not a template of CloudAI", hint
