"""`slipway export cloudai`: the cluster as CloudAI's files, in the dialect of commit 5b5c0f72 (docs/cloudai.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from acceptance.cloudai.toml_text import toml_text
from slipway.bundle import acceptance_scenario, gpu_image, scenario_files
from slipway.errors import EXIT_GOOD, UsageError
from slipway.files import write_folder
from slipway.settings import Settings, load_settings
from slipway.settings.scenario import on_cluster
from slipway.settings.scenario_fit import cloudai_system

MARK = "# Written by slipway export cloudai. Its --force replaces a folder of such files.\n"  # of each file
EXAMPLE_IMAGE = "nvcr.io/nvidia/pytorch:24.02-py3"


def export_cloudai(
    file: Path | str, folder: Path, *, image: str | None = None, force: bool = False, as_json: bool = False
) -> int:
    """Write system, tests and scenario to `folder`: what acceptance measures of the cluster in `file`, in `image`.

    The folder is written in one step. With `force` it replaces an earlier export. Raises SettingsError for wrong
    settings, UsageError if the folder has other files, or if there is nothing to measure or no image to measure in,
    SlipwayError if a file cannot be written.
    """
    try:
        texts = cloudai_files(load_settings(file), image)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    write_folder(folder, texts, MARK, force=force)
    paths = [str(folder / name) for name in texts]
    print(json.dumps({"files": paths}) if as_json else "\n".join(paths))
    return EXIT_GOOD


def cloudai_files(settings: Settings, image: str | None = None) -> dict[str, str]:
    """Return each file's text by its name. Raises UsageError as `export_cloudai` does."""
    queue = settings.gpu_queue
    measured = acceptance_scenario(settings)
    if queue is None:
        raise UsageError(
            f"queues = {', '.join(one.name for one in settings.queues)}: none has GPUs, and NcclTest needs them. "
            "Hint: add a queue of a type with GPUs"
        )
    if settings.scenario_file is not None:
        return _own_scenario(settings)
    if not measured["tests"]:
        raise UsageError("acceptance.scenario = none: there is no test to write. Hint: all-reduce")
    image = image or gpu_image(settings) or next(iter(settings.images), "").removeprefix("docker://")
    if not image:
        raise UsageError(f"images: is empty, and NcclTest needs an image. Hint: list one, or --image {EXAMPLE_IMAGE}")
    texts = {"system.toml": cloudai_system(settings, queue)}
    texts |= {f"test/{test['name']}.toml": _test(test, image) for test in measured["tests"]}
    return {**texts, "test_scenario/acceptance.toml": _scenario(settings.name, measured)}


def _own_scenario(settings: Settings) -> dict[str, str]:
    """The scenario that the settings name, with the system of the cluster."""
    if on_cluster(settings):
        raise UsageError(
            f"acceptance.scenario = {settings.acceptance.scenario}: is a file of the cluster. "
            "Hint: copy it next to the settings, and name it there"
        )
    files = {name: data.decode() for name, data in sorted(scenario_files(settings).items())}
    # CloudAI looks for hooks in conf/hook of the folder in which it is started (5b5c0f72, cli/handlers.py).
    return {f"conf/{name}" if name.startswith("hook/") else name: text for name, text in files.items()}


def _test(test: dict[str, Any], image: str) -> str:
    collective = test["collective"]
    return toml_text(
        {
            "name": test["name"],
            "description": f"{collective} of nccl-tests over all measured nodes",
            "test_template_name": "NcclTest",
            "cmd_args": {
                "docker_image_url": image,
                "subtest_name": f"{collective}_perf_mpi",
                "ngpus": 1,
                "minbytes": str(test["min_bytes"]),
                "maxbytes": str(test["max_bytes"]),
                "stepfactor": test.get("step_factor", 2),
                "iters": test["iterations"],
                "warmup_iters": test["warmup_iterations"],
                "check": 1,
            },
        }
    )


def _scenario(cluster: str, measured: dict[str, Any]) -> str:
    runs: list[dict[str, Any]] = []
    for test in measured["tests"]:
        minutes, seconds = divmod(test["timeout_s"], 60)
        run: dict[str, Any] = {
            "id": test["name"],
            "test_name": test["name"],
            "num_nodes": measured["nodes"],
            "time_limit": f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}",
        }
        if runs:
            run["dependencies"] = [{"type": "start_post_comp", "id": runs[-1]["id"]}]
        runs.append(run)
    return toml_text({"name": f"{cluster}-acceptance", "job_status_check": False, "Tests": runs})
