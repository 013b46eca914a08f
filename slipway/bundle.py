"""The bundle: everything that a node needs from Slipway, as one deterministic file.

`write_bundle` packs the node scripts, the templates, the acceptance program with its libraries, and the settings as
data. The same input gives the same bytes: names are sorted, and times, owners and modes are fixed, so that an unchanged
bundle is an unchanged CloudFormation asset.

Top level of the archive: `nodes/ headnode/ compute/ templates/ gpusuite/ acceptance.pyz node.env
containers.txt acceptance.json instances.json`, and `scenario/` where the settings name a CloudAI scenario.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from acceptance.cloudai.template_commands import shared_name
from slipway.errors import EnvironmentFault, Fault, SettingsError
from slipway.fsx_throughput import file_system_facts
from slipway.instances import COMPUTE_CAPABILITIES, INSTANCE_TYPES
from slipway.places import ACCEPTANCE, FILES
from slipway.settings import FSX_MOUNT, PARALLELCLUSTER_VERSION, Settings
from slipway.settings.rules.acceptance import WARM_UP
from slipway.settings.rules.scenario import SCENARIO_SHARE
from slipway.settings.rules.software import BUILD_SHARE
from slipway.settings.scenario import read_user_scenario
from slipway.settings.scenario_fit import cloudai_system, has_pyxis

NODE_DIRECTORIES = ("nodes", "headnode", "compute", "templates", "gpusuite")
LIBRARIES = ("jinja2", "markupsafe", "tomli")
PLOTLY = Path("node_modules/plotly.js-basic-dist-min/plotly-basic.min.js")
_NO_VERDICT = ("gpu_image", "file_system")  # keys of acceptance.json, without acceptance.scenario = full
PLOTLY_IN_PROGRAM = "acceptance/report/plotly-basic.min.js"
SCENARIO_FOLDER = "scenario"  # of the bundle, with the CloudAI scenario that the settings name
CONTAINERS_HEAD = f"""\
# Images that root imports, one a line: docker://REGISTRY/NAME:TAG
# To change it: sudo nano {FSX_MOUNT}/config/containers.txt, then: sudo systemctl restart slipway-containers
"""
STEP_TIMEOUT_S = 300  # bound of one bootstrap step; ParallelCluster gives a node 2100 s for everything
# Shares of acceptance.timeout_minutes: a run that hangs can still name its node before it is ended from outside.
QUEUE_SHARE, SWEEP_SHARE, ALLTOALL_SHARE, LOCATE_SHARE = 0.15, 0.35, 0.05, 0.35
STARTING_QUEUE_SHARE, STARTING_LOCATE_SHARE = 0.35, 0.20  # where dynamic nodes have to start first
# With acceptance.scenario = full. Below them, as without: the share of the queue.
FULL_SWEEP_SHARE, FULL_LOCATE_SHARE, SUITE_SHARE, STORAGE_SHARE = 0.25, 0.15, 0.25, 0.10
ALLTOALL_BYTES = 2 << 30  # the size that alltoall was measured at by others (acceptance/limits/limits.json)
MAIN = b"import sys\n\nfrom acceptance.cli import main\n\nsys.exit(main())\n"
SHEBANG = b"#!/usr/bin/env python3\n"
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
SKIPPED_PARTS = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache"})
COMPILED = frozenset({".pyc", ".so", ".pyd", ".c", ".pyi"})


@dataclasses.dataclass(frozen=True)
class Bundle:
    """A written bundle and the sha256 (hexadecimal) of its bytes."""

    path: Path
    sha256: str


def write_bundle(settings: Settings, destination: Path, root: Path = FILES) -> Bundle:
    """Write the bundle of `settings` to `destination`. Raises EnvironmentFault when a part of it is missing."""
    data = _archive(bundle_files(settings, root))
    destination.write_bytes(data)
    return Bundle(path=destination, sha256=hashlib.sha256(data).hexdigest())


def bundle_files(settings: Settings, root: Path = FILES) -> dict[str, bytes]:
    """Return every file of the bundle by its name in the archive."""
    files: dict[str, bytes] = {}
    for directory in NODE_DIRECTORIES:
        files.update(_tree(root / directory, directory))
    files["acceptance.pyz"] = acceptance_program(root)
    files["node.env"] = node_env(settings).encode()
    files["containers.txt"] = (CONTAINERS_HEAD + "".join(f"{image}\n" for image in settings.images)).encode()
    files["acceptance.json"] = (json.dumps(acceptance_scenario(settings), indent=2) + "\n").encode()
    files.update({f"{SCENARIO_FOLDER}/{name}": data for name, data in scenario_files(settings).items()})
    files["instances.json"] = (json.dumps(instance_facts(settings), indent=2) + "\n").encode()
    return files


def node_env_values(settings: Settings) -> dict[str, str]:
    """Return the values of node.env. Empty ones are known at deploy time: use-bundle.sh gets them."""
    return {
        "CLUSTER_NAME": settings.name,
        "REGION": settings.region,
        "FSX_MOUNT": FSX_MOUNT,
        "FSX_WRITTEN": " ".join(one.path for one in settings.storage.associations if one.export_changes),
        "RESULTS_BUCKET": "",
        "AMP_REMOTE_WRITE_URL": "",
        "LOG_GROUP": "",
        "PROMETHEUS_RETENTION_DAYS": str(settings.observability.retention_days),
        "NCCL_SOURCE": settings.nccl.source,
        "NCCL_VERSION": settings.nccl.nccl_version,
        "OFI_VERSION": settings.nccl.ofi_version,
        "NCCL_ENVIRONMENT": settings.nccl.environment,
        "NCCL_GPU_ARCHS": " ".join(map(str, gpu_architectures(settings))),
        "CAPACITY_BLOCKS": capacity_blocks(settings),
        "HEALTH_ENABLED": "true" if settings.health.enabled else "false",
        "HEALTH_DRAIN": "true" if settings.health.drain else "false",
        "HEALTH_REPLACED": "true" if settings.health.terminate_drained_nodes else "false",
        "HEALTH_REPLACEMENTS_PER_DAY": str(settings.health.replacements_per_day),
        "HEALTH_INTERVAL_S": str(settings.health.interval_seconds),
        "NGC_SECRET_ARN": settings.ngc_secret_arn or "",
        "CONTAINERS_AT_ONCE": str(settings.containers.imports_at_once or ""),
        "CONTAINERS_FORMAT": settings.containers.format,
        "CONTAINERS_COMPRESSED": "true" if settings.containers.compressed else "false",
        "CONTAINERS_PYXIS": "true" if settings.containers.pyxis else "false",
        "SOFTWARE_MIRROR": settings.software_mirror or "",
        "ACCEPTANCE_SCENARIO": "cloudai" if settings.scenario_file else settings.acceptance.scenario,
        "ACCEPTANCE_BUILD_WAIT_S": str(int(settings.acceptance.timeout_minutes * 60 * BUILD_SHARE)),
        "STEP_TIMEOUT_S": str(STEP_TIMEOUT_S),
    }


def capacity_blocks(settings: Settings) -> str:
    """Return `QUEUE=RESERVATION=MINUTES` of each capacity block, for headnode/block-end.py."""
    reserved = [(queue.name, queue.reservation) for queue in settings.queues if queue.reservation]
    return " ".join(f"{queue}={one.id}={one.hold_minutes}" for queue, one in reserved if one.kind == "capacity-block")


def gpu_architectures(settings: Settings) -> list[int]:
    """Return the CUDA compute capabilities, times ten, of the queues' GPUs, which NCCL is built for."""
    models = {queue.instance.gpu_model for queue in settings.queues if queue.instance.gpu_model}
    return sorted({COMPUTE_CAPABILITIES[model] for model in models})


def instance_facts(settings: Settings) -> dict[str, Any]:
    """Return instances.json: the hardware that the health checks expect. NVMe in GB, NVLinks of one GPU."""
    names = {settings.head_node.instance_type, *(queue.instance_type for queue in settings.queues)}
    types = {name: INSTANCE_TYPES[name] for name in sorted(names)}
    return {
        "schema": 1,
        "queues": {queue.name: {"instance_type": queue.instance_type, "efa": queue.efa} for queue in settings.queues},
        "instance_types": {
            name: {
                "gpus": facts.gpus,
                "efa_interfaces": facts.efa_interfaces,
                "nvlink_links": facts.nvlink_links or 0,
                "nvme_gb": facts.nvme_gb,
            }
            for name, facts in types.items()
        },
    }


def node_env(settings: Settings) -> str:
    """Return node.env: literal KEY=VALUE lines."""
    return "".join(f"{key}={value}\n" for key, value in node_env_values(settings).items())


def acceptance_scenario(settings: Settings) -> dict[str, Any]:
    """Return acceptance.json: what the head node runs, and its limits. Sizes in bytes, times in seconds."""
    queue = settings.gpu_queue
    starts_nodes = queue is not None and settings.judged_nodes > queue.min_count
    queue_share = STARTING_QUEUE_SHARE if starts_nodes else QUEUE_SHARE
    locate_share = STARTING_LOCATE_SHARE if starts_nodes else LOCATE_SHARE
    if settings.acceptance.scenario == "full":
        locate_share = FULL_LOCATE_SHARE
    through_network = queue is not None and queue.efa and settings.judged_nodes > 1
    tests = []
    if settings.acceptance.scenario != "none" and queue:
        tests = [_all_reduce(settings), *([_alltoall(settings)] if through_network else [])]
    return {
        "schema": 1,
        "cluster": settings.name,
        "partition": queue.name if queue else "",
        "instance_type": queue.instance_type if queue else "",
        "nodes": settings.judged_nodes or int(settings.scenario_file is not None),
        "gpus_per_node": queue.instance.gpus if queue else 0,
        "network": {"provider": "efa", "nics": queue.instance.efa_interfaces} if queue and queue.efa else None,
        "tests": tests,
        "nccl_tests_paths": [f"{FSX_MOUNT}/nccl/nccl-tests"],  # the shared build; without one the image's are taken
        "gpu_image": gpu_image(settings),
        "file_system": file_system_facts(
            settings.storage.fsx, FSX_MOUNT, queue.instance.network_gbit_s if queue else None
        ),
        "queue_timeout_s": int(settings.acceptance.timeout_minutes * 60 * queue_share),
        "locate": {
            "budget_s": int(settings.acceptance.timeout_minutes * 60 * locate_share),
            "drain_percent": settings.acceptance.drain_percent,
        },
        "limits": [
            {
                "collective": limit.collective,
                "nodes": limit.nodes,
                "size_bytes": limit.size,
                "fail_below_gb_per_s": limit.fail_below_gb_per_s,
                "warn_below_gb_per_s": limit.warn_below_gb_per_s,
                "source": limit.source,
                "date": limit.date.isoformat(),
            }
            for limit in settings.acceptance.limits
        ],
        **_test_scenario(settings),
        **_suite(settings),
    }


def _suite(settings: Settings) -> dict[str, Any]:
    """Return the key of the GPU suite and the storage test; none where they are not wanted."""
    if settings.acceptance.scenario != "full":
        return {}
    seconds = settings.acceptance.timeout_minutes * 60
    suite_s = int(seconds * SUITE_SHARE)
    return {
        "suite": {
            "timeout_s": suite_s,
            "storage_timeout_s": int(seconds * STORAGE_SHARE),
            "image_wait_s": suite_s,
            "quick": True,  # the whole suite takes longer than CloudFormation waits
            "storage_directory": FSX_MOUNT,
        }
    }


def _test_scenario(settings: Settings) -> dict[str, Any]:
    """Return the key that names the CloudAI scenario, which is run in place of the tests; none without one."""
    path = settings.scenario_file
    if path is None:
        return {}
    user = read_user_scenario(settings)
    named = {
        "file": f"{SCENARIO_FOLDER}/test_scenario/{user.file}" if user else str(path),
        "system": f"{SCENARIO_FOLDER}/system.toml",
        "timeout_s": int(settings.acceptance.timeout_minutes * 60 * SCENARIO_SHARE),
        "sha256": user.sha256 if user else None,
    }
    return {"test_scenario": named}


def scenario_files(settings: Settings) -> dict[str, bytes]:
    """Return the files of the CloudAI scenario that the settings name, and the system that it runs on; none without.

    Raises SettingsError if the scenario has become wrong since the settings were read.
    """
    if settings.scenario_file is None or settings.gpu_queue is None:
        return {}
    user = read_user_scenario(settings)
    if user and user.errors:
        faults = [Fault(user.file, 0, "", None, text, hint, rule_name="scenario-file") for text, hint in user.errors]
        raise SettingsError(faults)
    return {**(user.files if user else {}), "system.toml": cloudai_system(settings, settings.gpu_queue).encode()}


def gpu_image(settings: Settings) -> str | None:
    """Return the file of the first image, in which acceptance asks each node for its GPUs; None where jobs use none.

    The head node names the file (headnode/containers/images.py, `Image.stem`).
    """
    if not settings.images or not has_pyxis(settings):
        return None
    return f"{FSX_MOUNT}/containers/{shared_name(settings.images[0])}"


def acceptance_basis(settings: Settings) -> str:
    """Return the sha256 (hexadecimal) of what a verdict depends on; when it changes, the cluster is accepted again.

    It covers the scenario with its limits and the measured software. Dashboards, retention and scripts of the nodes do
    not change the verdict; image and file system do where the GPU suite runs in the one and the other is measured.
    """
    left_out = () if settings.acceptance.scenario == "full" else _NO_VERDICT
    basis = {
        "scenario": {key: value for key, value in acceptance_scenario(settings).items() if key not in left_out},
        "nccl": settings.nccl.model_dump(mode="json"),
        "os": settings.os,
        "parallelcluster": PARALLELCLUSTER_VERSION,
    }
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()


def _all_reduce(settings: Settings) -> dict[str, Any]:
    acceptance = settings.acceptance
    share = FULL_SWEEP_SHARE if acceptance.scenario == "full" else SWEEP_SHARE
    return {
        "name": "all_reduce",
        "collective": "all_reduce",
        "min_bytes": acceptance.min_bytes,
        "max_bytes": acceptance.max_bytes,
        "step_factor": 2,
        "iterations": acceptance.iterations,
        "warmup_iterations": max(1, acceptance.iterations // WARM_UP),
        "timeout_s": int(acceptance.timeout_minutes * 60 * share),
    }


def _alltoall(settings: Settings) -> dict[str, Any]:
    """Return the alltoall of one size, which goes through the network.

    The all_reduce of two nodes is bound by NVLink and hides a loss of EFA devices. Where there is no limit, not even a
    derived one, alltoall only reports its result: the all_reduce decides.
    """
    return {
        "name": "alltoall",
        "collective": "alltoall",
        "min_bytes": ALLTOALL_BYTES,
        "max_bytes": ALLTOALL_BYTES,
        "iterations": settings.acceptance.iterations,
        "warmup_iterations": max(1, settings.acceptance.iterations // WARM_UP),
        "timeout_s": int(settings.acceptance.timeout_minutes * 60 * ALLTOALL_SHARE),
        "missing_limit": "warn",
    }


def acceptance_program(root: Path = FILES) -> bytes:
    """Return acceptance.pyz: the acceptance package, its libraries as pure Python, and plotly.js for the report.

    It runs on any Python 3.9 and newer, because nothing in it is compiled.
    """
    plotly = root / PLOTLY
    if not plotly.is_file():
        raise EnvironmentFault(
            f"{plotly} is missing: the report's plots need it. "
            "Hint: make setup (it runs npm ci), or install a wheel that `make wheel` built"
        )
    files = {"__main__.py": MAIN, PLOTLY_IN_PROGRAM: plotly.read_bytes()}
    files.update(_tree(ACCEPTANCE if root == FILES else root / "acceptance", "acceptance"))
    for library in LIBRARIES:
        files.update(_library(library))
    buffer = io.BytesIO(SHEBANG)
    buffer.seek(0, io.SEEK_END)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, ZIP_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _library(name: str) -> Iterator[tuple[str, bytes]]:
    """Yield a library's Python files and its licence, from the running environment."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise EnvironmentFault(f"the Python package {name} is not installed. Hint: make setup") from None
    for file in distribution.files or []:
        is_code = file.parts[0] == name and file.suffix not in COMPILED
        is_licence = file.parts[0].endswith(".dist-info") and "LICENSE" in file.name.upper()
        if is_code or is_licence:
            yield file.as_posix(), Path(str(file.locate())).read_bytes()


def _tree(directory: Path, name: str) -> dict[str, bytes]:
    if not directory.is_dir():
        raise EnvironmentFault(f"{directory} is missing: the checkout is incomplete. Hint: git checkout {name}")
    return {
        f"{name}/{path.relative_to(directory).as_posix()}": path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix not in COMPILED and not SKIPPED_PARTS.intersection(path.parts)
    }


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return a gzipped tar. Files that start with `#!` are executable, whatever their mode in the checkout."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", filename="", mtime=0, compresslevel=6) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o755 if data.startswith(b"#!") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()
