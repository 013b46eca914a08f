"""Each template's script is run next to stand-ins of Slurm and of the image's programs, and its output judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.cli import main
from acceptance.cloudai.results import results_of

DATA = Path(__file__).parent / "data/cloudai"
ROOT = Path(__file__).resolve().parents[2]
SUITE = ROOT / "tests/gpusuite/data"
# Stands in for srun, scontrol and what the images have. Like CloudAI's ai_dynamo.sh it ends without a list of nodes.
PROGRAM = r"""#!/bin/bash
case ${0##*/} in
  srun)
    while [[ $1 == -* ]]; do
      case $1 in
        --output=*) exec >"${1#--output=}" ;;
        --error=*) exec 2>"${1#--error=}" ;;
        --reservation) shift ;;
      esac
      shift
    done
    exec "$@"
    ;;
  scontrol) printf 'gpu-%s\n' 01 02 03 ;;
  numactl | nsys)
    until [[ $1 == python* ]]; do shift; done
    exec "$@"
    ;;
  ucc_perftest) printf 'Collective: %s\n 4 1024 9 8 9.5 1.5 1.6 1.4\n' "$2" ;;
  comm_replay) echo 'Replayed 12 all_reduce calls' ;;
  python*)
    if [[ $1 == */storage_tests.py ]]; then
      exec PYTHON "$@" # the program itself
    elif [[ $1 == */gpusuite/* ]]; then
      name=${1##*/}
      until [[ $1 == --report-dir ]]; do shift; done
      mkdir -p "${2/\%N/gpu-01}"
      cp "${0%/*}/$name.json" "${2/\%N/gpu-01}/"
      echo "$*"
    elif [[ $* == *paxml.main* ]]; then
      for time in 9 9 9 9 9 9 9 9 9 9 3 5; do echo "[PAX STATUS]: train_step() took $time.0 seconds." >&2; done
      echo 'E2E time: Elapsed time for train 90.1 s' >&2
    elif [[ $* == *cloudai_nemorun.py* ]]; then
      printf 'global_step: %s | train_step_timing in s: %s\n' 0 7.1 1 2.5 2 1.5
      echo '`Trainer.fit` stopped: `max_steps=3` reached.' >&2
    fi
    ;;
  ai_dynamo.sh)
    [[ ${DYNAMO_NODELIST:-} =~ ^[a-z0-9,-]+$ ]] || { echo 'DYNAMO_NODELIST is not set' >&2; exit 1; }
    echo "roles=$DYNAMO_NODELIST"
    while (($#)); do
      [[ $1 != --dynamo-frontend-node ]] || echo "frontend=$2"
      [[ $1 != --results-dir ]] || results=$2
      shift
    done
    printf 'Metric,avg,p50,p99\nTime To First Token (ms),12.5,11.0,20.0\n' >"$results/aiperf_report.csv"
    : >"$results/success-marker.txt"
    ;;
esac
"""
NAMES = ("srun", "scontrol", "numactl", "nsys", "ucc_perftest", "comm_replay", "python", "python3", "ai_dynamo.sh")


def image(tmp_path: Path) -> Path:
    folder = tmp_path / "image"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text(PROGRAM.replace("PYTHON", sys.executable))
        (folder / name).chmod(0o755)
    recorded = json.loads((SUITE / "h200x2-full.json").read_text())["parts"]
    for name in ("gpu_tests", "ddp_tests"):
        (folder / f"{name}.py.json").write_text(json.dumps(recorded[name]["report"]))
    return folder


def run(tmp_path: Path, job: str, scenario: Path, good: bool = True, options: tuple[str, ...] = ()) -> Path:
    """Write the scripts, run that of a job with the image's paths, and return its folder."""
    system = ["--system-config", str(DATA / "head/system.toml"), "--test-scenario", str(scenario)]
    assert main(["dry-run", *system, *options, "--output-dir", str(tmp_path / "OUT")]) == 0
    (folder,) = (tmp_path / "OUT").glob(f"*/{job}")
    programs = image(tmp_path)
    for path in folder.rglob("*.sh"):
        text = (
            path.read_text().replace("/opt/paxml/workspace", str(folder)).replace("/cloudai_run_results", str(folder))
        )
        text = text.replace("/opt/slipway/current", str(ROOT))
        path.write_text(text.replace("/opt/hpcx/ucc/bin", str(programs)).replace("/cloudai_install", str(programs)))
    variables = {f"SLURM_{name}": "0" for name in ("PROCID", "NODEID", "LOCALID")}
    variables |= {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "gpu-[01-03]", "USER": "ann"}
    variables["SLURMD_NODENAME"] = "gpu-01"
    with (folder / "stdout.txt").open("w") as output, (folder / "stderr.txt").open("w") as errors:
        subprocess.run(
            ["bash", folder / "cloudai_sbatch_script.sh"],
            env={"PATH": f"{programs}:/usr/bin:/bin", **variables},
            stdout=output,
            stderr=errors,
            timeout=60,
            check=good,
        )
    return folder


@pytest.mark.parametrize(
    ("job", "template", "figure", "value"),
    [
        ("ucc/0", "UCCTest", "bandwidth at 1024 bytes, average", 1.5),
        ("replay/0", "ChakraReplay", "replayed all_reduce", 12.0),
        ("recipe/0/1", "NeMoRun", "step time, mean", 2.0),
        ("grok/0", "JaxToolboxGrok", "step time, mean", 4.0),
        ("gpt/0", "JaxToolboxGPT", "step time, mean", 4.0),
        ("nemotron/0", "JaxToolboxNemotron", "step time, mean", 4.0),
        ("chat/0", "AIDynamo", "aiperf: Time To First Token, avg", 12.5),
    ],
)
def test_a_job_of_each_template_runs_and_its_output_is_judged(
    job: str, template: str, figure: str, value: float, tmp_path: Path
) -> None:
    figures, checks = results_of(template, run(tmp_path, job, DATA / "templates/scenario.toml"))
    assert {check.outcome for check in checks} == {"pass"}
    assert (figures[0].name, figures[0].value) == (figure, pytest.approx(value))


ROLES = """
name = "talk"
[[Tests]]
id = "talk"
name = "talk"
description = "d"
test_template_name = "AIDynamo"
{count}
  [Tests.cmd_args]
  docker_image_url = "/fsx/dynamo.sqsh"
  workloads = "aiperf.sh"
    [Tests.cmd_args.dynamo]
    num_prefill_nodes = {prefill}
    num_decode_nodes = {decode}
  [Tests.extra_env_vars]
  {variable}
"""
SHELL = "DYNAMO_NODELIST = \"$(scontrol show hostname $SLURM_JOB_NODELIST | tr -s '\\\\n' ',')\""


@pytest.mark.parametrize(
    ("count", "prefill", "decode", "variable", "printed"),
    [
        ("num_nodes = 3", 1, 1, "", ["roles=gpu-02,gpu-03", "frontend=gpu-01"]),  # the guide: 1 + prefill + decode
        ("num_nodes = 3", 2, 0, "", ["roles=gpu-02,gpu-03", "frontend=gpu-01"]),
        ("", 1, 2, "", ["roles=gpu-01,gpu-02,gpu-03"]),  # the script's own choice: the first node of decode
        ("", 3, 0, "", ["roles=gpu-01,gpu-02,gpu-03", "frontend=gpu-01"]),
        ("", 1, 2, SHELL, ["roles=gpu-01,gpu-02,gpu-03"]),
        ("", 1, 2, 'DYNAMO_NODELIST = "b,c,a"', ["roles=b,c,a"]),
    ],
)
def test_the_frontend_and_the_roles_of_dynamo_have_nodes(
    count: str, prefill: int, decode: int, variable: str, printed: list[str], tmp_path: Path
) -> None:
    scenario = tmp_path / "talk.toml"
    scenario.write_text(ROLES.format(count=count, prefill=prefill, decode=decode, variable=variable))
    folder = run(tmp_path, "talk/0", scenario)
    assert (folder / "node-%n-stdout.txt").read_text().splitlines() == printed


HOOKED = """name = "loop"
pre_test = "talk"
post_test = "talk"
[[Tests]]
id = "long"
name = "long"
description = "d"
test_template_name = "BashCmd"
num_nodes = 3
  [Tests.cmd_args]
  cmd = "true"
"""


@pytest.mark.parametrize("fails", [False, True])
def test_dynamo_as_a_hook_has_a_list_of_its_nodes(fails: bool, tmp_path: Path) -> None:
    """The hook takes two of the three nodes of its job. A command at its start that fails ends the hook, not the job."""
    (tmp_path / "hook").mkdir()
    talk = ROLES.format(count="num_nodes = 2", prefill=1, decode=1, variable="")
    talk = talk.replace("  workloads =", f'  startup_cmd = "{"false" if fails else "true"}"\n  workloads =')
    (tmp_path / "hook/talk.toml").write_text(talk)
    (tmp_path / "scenario.toml").write_text(HOOKED)
    options = ("--hook-dir", str(tmp_path / "hook"))
    folder = run(tmp_path, "long/0", tmp_path / "scenario.toml", not fails, options)
    notes = [line.split(" ", 1)[1] for line in (folder / "notes.txt").read_text().splitlines()]
    if fails:
        assert notes[1:] == ["begin pre_test talk", "end 1", "exit 1"]
        return
    assert notes[1:] == [
        *("begin pre_test talk", "end 0", "begin test", "end 0", "begin post_test talk", "end 0", "exit 0")
    ]
    for kind in ("pre_test", "post_test"):
        assert (folder / kind / "talk/node-%n-stdout.txt").read_text().splitlines() == ["roles=gpu-01,gpu-02"]


SUITE_TEST = """
name = "machines"
[[Tests]]
id = "one"
name = "one"
description = "d"
test_template_name = "{template}"
num_nodes = 2
  [Tests.cmd_args]
  {arguments}
"""


def suite_scenario(tmp_path: Path, template: str, arguments: str) -> Path:
    path = tmp_path / "machines.toml"
    path.write_text(SUITE_TEST.format(template=template, arguments=arguments))
    return path


@pytest.mark.parametrize(
    ("template", "arguments", "words", "figure"),
    [
        (
            "GpuTest",
            'stages = "compute"',
            "reports/%N --expect-gpus 8 --stages compute",
            ("gemm fp32 8192", 49.0, "TFLOP/s"),
        ),
        (
            "DdpTest",
            'sizes = "1M,1G"',
            "reports/%N --expect-gpus 16 --sizes 1M,1G",
            ("bus bandwidth of all_gather", 0, "GB/s"),
        ),
    ],
)
def test_the_gpu_suite_as_a_test(
    template: str, arguments: str, words: str, figure: tuple[str, float, str], tmp_path: Path
) -> None:
    folder = run(tmp_path, "one/0", suite_scenario(tmp_path, template, arguments))
    assert (folder / "stdout.txt").read_text().strip().endswith(words)
    figures, checks = results_of(template, folder)
    assert [(check.outcome, check.message) for check in checks] == [("pass", "1 report with SUCCESS")]
    assert (figures[0].name, figures[0].unit, figures[0].higher) == (figure[0], figure[2], True)
    assert figures[0].value > figure[1]


def test_storage_is_measured_and_a_slow_one_fails(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    arguments = f'directory = "{tmp_path}/place"\nquick = true\nsize = "8M"\nfiles = 10\nleast_read_gb_per_s = 1e9'
    folder = run(tmp_path, "one/0", suite_scenario(tmp_path, "StorageTest", arguments), good=False)
    figures, checks = results_of("StorageTest", folder)
    assert [one.name for one in figures] == ["write", "read", "data loader"]
    assert [check.outcome for check in checks] == ["fail"]
    assert checks[0].message.startswith("gpu-01: ")
    assert list((tmp_path / "place").iterdir()) == []


def test_reports_that_are_missing_or_damaged(tmp_path: Path) -> None:
    assert "has no report" in results_of("GpuTest", tmp_path)[1][0].message
    (tmp_path / "reports/gpu-01").mkdir(parents=True)
    (tmp_path / "reports/gpu-01/a.json").write_text('{"result": "SUCCESS", "readings": [3]}')
    (tmp_path / "reports/gpu-01/b.json").write_text("{")
    assert "has a report that is damaged" in results_of("GpuTest", tmp_path)[1][0].message
