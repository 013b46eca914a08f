"""`acceptance dry-run`: the scripts as golden files, and what they do when bash runs them next to stand-ins of Slurm."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from acceptance.cli import main
from acceptance.cloudai import cli, plan
from acceptance.cloudai.shell import batch_value, word
from acceptance.cloudai.template_commands import cached_name
from acceptance.errors import InputError
from acceptance.runner.files import new_folder

DATA = Path(__file__).parent / "data/cloudai"
GOLDEN = DATA / "golden"
STAMP = "2026-11-29_04-00-00"
SHELLCHECK = Path(__file__).resolve().parents[2] / ".venv-test/bin/shellcheck"


def dry_run(tmp_path: Path, scenario: Path, *options: str) -> int:
    system = ["--system-config", str(DATA / "head/system.toml"), "--test-scenario", str(scenario)]
    folders = ["--tests-dir", str(DATA / "head/tests"), "--hook-dir", str(DATA / "head/hook")]
    return main(["dry-run", *system, *folders, "--output-dir", str(tmp_path / "OUT"), *options])


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.time, "strftime", lambda _: STAMP)


def weekly(tmp_path: Path) -> Path:
    assert dry_run(tmp_path, DATA / "head/scenario.toml") == 0
    return tmp_path / f"OUT/weekly_{STAMP}"


def compare(folder: Path, golden: Path, names: list[str], tmp_path: Path) -> None:
    """Compare files with those of the repository, in which the output folder is /OUT."""
    for name in names:
        text = (folder / name).read_text().replace(str(tmp_path / "OUT"), "/OUT")
        kept = golden / f"{name}.golden"
        if os.environ.get("SLIPWAY_UPDATE_GOLDEN"):
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(text)
        assert text == kept.read_text(), f"{kept}: if meant: SLIPWAY_UPDATE_GOLDEN=1 pytest {__file__}"


def test_scripts_of_a_scenario_with_hooks_and_dependencies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = weekly(tmp_path)
    script = "cloudai_sbatch_script.sh"
    names = [f"{job}/{script}" for job in ("ring/1", "background/0", "grid/0/1", "probe/0")]
    names += ["plan.tsv", "ring/0/env_vars.sh", "ring/0/test-run.toml", "background/0/hostfile.txt"]
    compare(folder, GOLDEN / "weekly", names, tmp_path)
    assert capsys.readouterr().out.replace(str(tmp_path), "").splitlines() == [
        "job 1: ring/0",
        "job 2: ring/1, afterany:1",
        "job 3: background/0, after:1",
        "job 4: grid/0/1, maxbytes=1G, extra_env_vars.NCCL_ALGO=Ring, afterany:2,afterany:3",
        "job 5: grid/0/2, maxbytes=1G, extra_env_vars.NCCL_ALGO=Tree, afterany:4",
        "job 6: grid/0/3, maxbytes=2G, extra_env_vars.NCCL_ALGO=Ring, afterany:5",
        "job 7: grid/0/4, maxbytes=2G, extra_env_vars.NCCL_ALGO=Tree, afterany:6",
        "job 8: probe/0",
        f"/OUT/weekly_{STAMP}: 8 jobs, not submitted. To submit: /OUT/weekly_{STAMP}/submit.sh",
    ]
    assert tomllib.loads((folder / "grid/0/4/test-run.toml").read_text())["test_definition"]["extra_env_vars"] == {
        "NCCL_ALGO": "Tree"
    }


def test_scripts_of_each_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run(tmp_path, DATA / "templates/scenario.toml") == 0
    folder = tmp_path / f"OUT/templates_{STAMP}"
    script = "cloudai_sbatch_script.sh"
    names = [f"{job}/0/{script}" for job in ("sleep", "ucc", "replay", "host-program", "grok", "gpt", "chat")]
    names += ["megatron/0/generated_command.sh", f"recipe/0/1/{script}", "recipe/0/1/env_vars.sh", "plan.tsv"]
    names += ["grok/0/run.sh", "nemotron/0/run.sh", "chat/0/aiperf.sh", "chat/0/lmcache-config.yaml"]
    compare(folder, GOLDEN / "templates", names, tmp_path)
    printed = capsys.readouterr().out
    reason = "8 GPUs cannot be divided into groups of 3 (tensor x pipeline x context)"
    assert f"skipped: recipe: trainer.strategy.tensor_model_parallel_size=3: {reason}" in printed
    assert f"run on the head node, it submits a job itself: {folder}/megatron/0/generated_command.sh" in printed
    scripts = [str(path) for path in folder.rglob("*.sh")]
    done = subprocess.run([SHELLCHECK, "-S", "warning", *scripts], capture_output=True, text=True, check=False)
    assert done.stdout == ""


STAND_IN = """#!/bin/bash
# Stands in for a command of Slurm: notes its arguments; srun runs the program behind its options.
printf '%s' "${0##*/}" >>"$CALLS"
printf ' %q' "$@" >>"$CALLS"
echo >>"$CALLS"
case ${0##*/} in
  srun)
    while [[ $1 == -* ]]; do
      [[ $1 != --output=* ]] || exec >"${1#--output=}"
      [[ $1 != --reservation ]] || shift
      shift
    done
    exec "$@"
    ;;
  scontrol) echo gpu-01 ;;
  sbatch)
    number=$(grep -c '^sbatch' "$CALLS")
    script=$(cut -d ' ' -f 4 "/proc/$PPID/stat") # submit.sh, which waits for a subshell of its own
    [[ $number != "${END_AT:-}" ]] || kill -TERM "$script"
    [[ $number != "${KILL_AT:-}" ]] || kill -KILL "$script"
    [[ $number != "${FAIL_AT:-}" ]] || { echo "sbatch: error: refused" >&2; exit 1; }
    echo "$((100 + number))|${!#}" >>"$CALLS.queue"
    echo "$((100 + number));cluster"
    ;;
  squeue) [[ -z ${DEAF:-} ]] || exit 1; echo '7|/elsewhere/cloudai_sbatch_script.sh'; cat "$CALLS.queue" ;;
  all_reduce_perf_mpi) echo "# Avg bus bandwidth    : 1"; [[ -z ${FAIL:-} ]] || exit 3 ;;
esac
"""


def stand_ins(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("srun", "scontrol", "scancel", "sbatch", "squeue", "all_reduce_perf_mpi", "hostname"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    path = f"{folder}:/usr/bin:/bin"
    return {
        "PATH": path,
        "CALLS": str(tmp_path / "calls"),
        "SLURM_JOB_ID": "101",
        "USER": "ann",
        "SLURM_JOB_NODELIST": "gpu-01",
    }


def run(script: Path, environment: dict[str, str]) -> tuple[int, list[str], str]:
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, timeout=30, check=False)
    calls = Path(environment["CALLS"])
    return done.returncode, calls.read_text().splitlines() if calls.exists() else [], done.stderr


JOBS = "ring\t0\t0\t101\nring\t1\t0\t102\nbackground\t0\t0\t103\nprobe\t0\t0\t104\n"


def test_a_job_runs_its_gate_the_test_and_the_hook_after_it(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    (folder / "jobs.tsv").write_text(JOBS)
    code, calls, _ = run(folder / "ring/0/cloudai_sbatch_script.sh", environment)
    assert code == 0
    assert [call.split()[0] for call in calls] == [
        "scontrol",
        "srun",
        "hostname",
        "srun",
        "all_reduce_perf_mpi",
        "srun",
        "all_reduce_perf_mpi",
    ]
    test = next(call for call in calls if call.startswith("srun") and "Ring" not in call and "8M" in call)
    assert f"{Path.cwd()}/topo.xml:/topo.xml" in test  # $PWD is of the job
    assert "/data\\ with\\ blank:/data" in test
    assert calls[-1].endswith("--stepfactor 2")


def test_a_value_with_shell_text_stays_a_value(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    script = f"source {folder}/ring/0/env_vars.sh; printf '%s' \"$NOTE\""
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "it's ann's \"quoted\" `date` $(date)"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("plain-1.5,x", "plain-1.5,x"),
        ("$(touch /tmp/x)", "$(touch /tmp/x)"),
        ("`id`", "`id`"),
        ("${USER}s", "anns"),
        ("a $USER \"b\" \\ 'c'", "a ann \"b\" \\ 'c'"),
        ("$", "$"),
        ("$1 ${USER:-x} $USER", "$1 ${USER:-x} ann"),
        ("two\nlines $USER", "two\nlines ann"),
        ("", ""),
        ("*;&|<>#~!", "*;&|<>#~!"),
    ],
)
def test_a_word_is_data_but_for_names_of_variables(text: str, printed: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"printf '%s' {word(text)}"], env={"USER": "ann"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == printed


def test_a_failed_gate_skips_test_and_hook_and_ends_the_scenario(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    (folder / "jobs.tsv").write_text(JOBS)
    code, calls, errors = run(folder / "ring/0/cloudai_sbatch_script.sh", {**environment, "FAIL": "1"})
    assert code == 1
    assert "pre_test quick_ring failed: the test and post_test are skipped" in errors
    assert sum(call.startswith("all_reduce_perf_mpi") for call in calls) == 1
    assert calls[-1] == "scancel 104 103 102"  # job_status_check; not itself
    assert sorted(path.name for path in (folder / "ended").iterdir()) == ["102", "103", "104"]


def test_a_gate_without_a_result_fails_although_it_exits_with_0(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    (folder / "jobs.tsv").write_text("")
    (tmp_path / "bin/all_reduce_perf_mpi").write_text("#!/bin/bash\n")
    assert run(folder / "ring/0/cloudai_sbatch_script.sh", environment)[0] == 1


def test_the_last_iteration_ends_the_tests_that_end_with_it(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    (folder / "jobs.tsv").write_text(JOBS)
    assert not any(
        call.startswith("scancel") for call in run(folder / "ring/0/cloudai_sbatch_script.sh", environment)[1]
    )
    code, calls, _ = run(folder / "ring/1/cloudai_sbatch_script.sh", environment)
    assert (code, calls[-1]) == (0, "scancel 103")


def test_a_job_that_another_one_ended_does_not_count_as_a_failure(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    (folder / "jobs.tsv").write_text(JOBS)
    (folder / "ended").mkdir()
    (folder / "ended/101").touch()
    code, calls, _ = run(folder / "ring/0/cloudai_sbatch_script.sh", {**environment, "FAIL": "1"})
    assert code == 1
    assert not any(call.startswith("scancel") for call in calls)


def test_submit_gives_slurm_the_dependencies_and_releases_all_at_the_end(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    code, calls, _ = run(folder / "submit.sh", environment)
    assert code == 0
    options = [call.split(f"{folder}")[0].strip() for call in calls]
    assert options == [
        "sbatch --parsable --hold",
        "sbatch --parsable --hold --dependency=afterany:101",
        "sbatch --parsable --hold --dependency=after:101",
        r"sbatch --parsable --hold --dependency=afterany:102\,afterany:103",
        *(f"sbatch --parsable --hold --dependency=afterany:{number}" for number in (104, 105, 106)),
        "sbatch --parsable --hold",
        r"scontrol release 101\,102\,103\,104\,105\,106\,107\,108",
    ]
    assert (folder / "jobs.tsv").read_text().splitlines()[3] == "grid\t0\t1\t104"
    assert run(folder / "submit.sh", environment)[0] == 2  # it was submitted


def test_submit_cancels_what_it_submitted_when_slurm_refuses_a_job(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    code, calls, errors = run(folder / "submit.sh", {**environment, "FAIL_AT": "3"})
    assert code != 0
    assert calls[-1] == "scancel 101 102"
    assert "not all jobs were submitted; cancelling 2" in errors
    assert not (folder / "jobs.tsv").exists()


def test_submit_that_is_ended_while_sbatch_answers_loses_no_job(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    code, calls, errors = run(folder / "submit.sh", {**environment, "END_AT": "3"})
    assert (code, calls[-1]) == (130, "scancel 101 102 103")  # 103: submitted, its id was not noted
    assert "not all jobs were submitted; cancelling 3" in errors


def test_resume_after_a_kill_cancels_what_was_submitted_and_begins_anew(tmp_path: Path) -> None:
    folder, environment = weekly(tmp_path), stand_ins(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    assert run(folder / "submit.sh", {**environment, "KILL_AT": "3"})[0] == -9
    resume = ["bash", "-c", f"exec bash {tmp_path}/link/submit.sh --resume"]
    deaf = subprocess.run(resume, env={**environment, "DEAF": "1"}, capture_output=True, text=True, check=False)
    assert deaf.returncode == 2
    assert "squeue does not answer, and a killed submit.sh may have left jobs. Hint: try scontrol ping" in deaf.stderr
    subprocess.run(resume, env=environment, capture_output=True, check=True)
    assert "scancel 101 102 103" in Path(environment["CALLS"]).read_text().splitlines()
    assert (folder / "jobs.tsv").read_text().splitlines()[0] == "ring\t0\t0\t104"


def scenario(tmp_path: Path, text: str) -> Path:
    (tmp_path / "x.toml").write_text('name = "n"\n' + text)
    return tmp_path / "x.toml"


NODES = '[[Tests]]\nid = "a"\ntest_name = "ring"\nnodes = ["train:rack1:9"]\n'
LAUNCHED = """[[Tests]]
id = "a"
name = "m"
description = "d"
test_template_name = "NeMoLauncher"
cmd_args = {}
[[Tests]]
id = "b"
test_name = "ring"
dependencies = [{type = "start_post_comp", id = "a"}]
"""
JAX = """[[Tests]]
id = "a"
name = "j"
description = "d"
test_template_name = "JaxToolboxGrok"
[Tests.cmd_args]
docker_image_url = "i"
"""
REFUSED = [
    (
        NODES,
        "n: a: asks for 9 nodes of the group rack1, which has 8 left. Hint: ask for fewer, or extend the group in"
        " the system's file",
    ),
    (
        LAUNCHED,
        "n: b: start_post_comp a cannot be given to Slurm: NeMo's launcher submits the job of a itself."
        " Hint: remove the dependency, or use NeMoRun",
    ),
    (
        JAX,
        'n: a: extra_env_vars.COMBINE_THRESHOLD is needed: a number of bytes, such as "301989888".'
        " Hint: correct the test",
    ),
    (
        JAX.replace("JaxToolboxGrok", "ChakraReplay"),
        "n: a: cmd_args.trace_path is missing: the folder of the traces. Hint: correct the test",
    ),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_cannot_be_planned(text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert dry_run(tmp_path, scenario(tmp_path, text)) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"acceptance: {words}"
    assert not (tmp_path / "OUT").exists()


@pytest.mark.parametrize(
    ("text", "written"),
    [("plain", "plain"), ("a b", '"a b"'), ("it's", '"it\'s"'), ('a" --x', r'"a\" --x"'), ("a\\", r'"a\\"')],
)
def test_a_value_of_sbatch_is_one_word(text: str, written: str) -> None:
    assert batch_value(text) == written


@pytest.mark.parametrize("name", ["a$HOME", "a\nb", 'a"b', "a\\b"])
def test_an_output_folder_that_a_script_cannot_name(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry_run(tmp_path, DATA / "head/scenario.toml", "--output-dir", str(tmp_path / name)) == 2
    assert "has characters that a batch script cannot name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan, "_rows", full)
    assert dry_run(tmp_path, DATA / "head/scenario.toml") == 3
    assert not (tmp_path / "OUT").exists()
    assert f"OUT/weekly_{STAMP}: No space left on device" in capsys.readouterr().err


def test_what_a_killed_run_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    with new_folder(tmp_path / "a") as living:
        pass
    process = subprocess.Popen(["true"])
    process.wait()
    left = tmp_path / living.name.replace(f"-{os.getpid()}-", f"-{process.pid}-")
    other_host = tmp_path / f".other{left.name[1:]}"
    running = tmp_path / living.name.replace(f"-{os.getpid()}-", f"-{os.getppid()}-")
    for folder in (left, other_host, running):
        (folder / "half").mkdir(parents=True)
    with new_folder(tmp_path / "b"):
        pass
    assert sorted(path for path in tmp_path.iterdir() if path.name.startswith(".")) == sorted([other_host, running])


def test_the_second_of_two_at_once_is_refused(tmp_path: Path) -> None:
    making = new_folder(tmp_path / "a")
    (making.__enter__() / "mine").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a/theirs").touch()
    with pytest.raises(InputError, match="exists and is not an empty folder"):
        making.__exit__(None, None, None)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["a", "a/theirs"]


def test_a_percent_sign_in_an_id_is_no_pattern_of_slurm(tmp_path: Path) -> None:
    scenario = tmp_path / "x.toml"
    scenario.write_text('name = "n"\n[[Tests]]\nid = "50%t"\ntest_name = "ring"\n')
    assert dry_run(tmp_path, scenario) == 0
    script = (tmp_path / f"OUT/n_{STAMP}/50%t/0/cloudai_sbatch_script.sh").read_text()
    assert script.count("50%%t/0/") == 4


def test_mounts_of_extra_options_come_next_to_those_of_the_test(tmp_path: Path) -> None:
    """Slurm hands only the last --container-mounts to the nodes; seen with pyxis 0.20.0 and 0.24.0."""
    scenario = tmp_path / "x.toml"
    extra = "--comment=x --container-mounts=/a:/b,/c:/d --container-mounts /e:/f:ro"
    scenario.write_text(f'name = "n"\n[[Tests]]\nid = "m"\ntest_name = "ring"\nextra_srun_args = "{extra}"\n')
    assert dry_run(tmp_path, scenario) == 0
    main_step = (tmp_path / f"OUT/n_{STAMP}/m/0/cloudai_sbatch_script.sh").read_text().rpartition("srun")[2]
    assert main_step.count("--container-mounts") == 1
    assert all(mount in main_step for mount in (":/cloudai_run_results,", ",/a:/b,/c:/d,/e:/f:ro"))
    assert "--comment=x" in main_step


def test_the_test_of_a_hook_cannot_be_written_outside_of_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(DATA / "head", tmp_path / "head")
    for path in (tmp_path / "head/hook").rglob("*.toml"):
        path.write_text(path.read_text().replace('"sweep_up"', '"../../../../x"'))
    hooks = ["--hook-dir", str(tmp_path / "head/hook")]
    assert dry_run(tmp_path, DATA / "head/scenario.toml", *hooks) == 2
    assert "the name of its hook's test, '../../../../x', is a folder's name and must be" in capsys.readouterr().err


def test_a_hook_that_needs_more_nodes_than_its_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(DATA / "head", tmp_path / "head")
    hook = tmp_path / "head/hook/gate.toml"
    hook.write_text(hook.read_text() + "num_nodes = 3\n")
    path = scenario(tmp_path, 'pre_test = "gate"\n[[Tests]]\nid = "a"\ntest_name = "ring"\nnum_nodes = 2\n')
    assert dry_run(tmp_path, path, "--hook-dir", str(tmp_path / "head/hook")) == 2
    assert "n: a: its hook quick_ring needs 3 nodes, the test has 2." in capsys.readouterr().err


def test_the_system_must_be_slurm_and_must_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.toml").write_text('name = "s"\nscheduler = "lsf"\ninstall_path = "i"\noutput_path = "o"\n')
    path = scenario(tmp_path, '[[Tests]]\nid = "a"\ntest_name = "ring"\n')
    assert dry_run(tmp_path, path, "--system-config", str(tmp_path / "s.toml")) == 2
    assert 's.toml: scheduler = "lsf": no scripts are written for this kind of system. Hint: give' in (
        capsys.readouterr().err
    )
    assert dry_run(tmp_path, path, "--system-config", str(path)) == 2
    assert f"{path}: is no system. Hint: give a file with scheduler" in capsys.readouterr().err
    monkeypatch.delenv("CLOUDAI_SYSTEM_CONFIG", raising=False)
    assert main(["dry-run", "--test-scenario", str(path)]) == 2
    assert "--system-config: is missing, and CLOUDAI_SYSTEM_CONFIG is not set" in capsys.readouterr().err


def test_a_bad_file_that_the_scenario_does_not_need_is_no_fault(tmp_path: Path) -> None:
    shutil.copytree(DATA / "head", tmp_path / "head")
    (tmp_path / "head/tests/other.toml").write_text('test_template_name = "vllm"\n')
    (tmp_path / "head/hook/bad.toml").write_text("a = [")
    folders = ["--tests-dir", str(tmp_path / "head/tests"), "--hook-dir", str(tmp_path / "head/hook")]
    assert dry_run(tmp_path, DATA / "head/scenario.toml", *folders) == 0


def test_the_mode_of_the_guide_of_2024(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "--system-config",
        str(DATA / "guide/system.toml"),
        "--test-scenario",
        str(DATA / "guide/scenario.toml"),
        "--tests-dir",
        str(DATA / "guide/tests"),
        "--output-dir",
        str(tmp_path),
    ]
    assert main(["--mode", "dry-run", *arguments]) == 0
    assert "2 jobs, not submitted" in capsys.readouterr().out
    script = (tmp_path / f"first-look_{STAMP}/two/0/cloudai_sbatch_script.sh").read_text()
    assert "#SBATCH --nodelist=gpu-01,gpu-02,gpu-03,gpu-04\n" in script


@pytest.mark.parametrize(
    "words",
    [
        ["--log-file", "a.log", "dry-run"],
        ["--log-level", "DEBUG", "run"],
        ["generate-report", "--log-file", "a.log", "--result-dir", "x"],
        ["uninstall", "--log-level=DEBUG"],
    ],
)
def test_the_options_of_a_log_are_refused_by_name(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    rule = "there is no log file: the generated commands are in cloudai_sbatch_script.sh of each job's folder"
    assert said.startswith(("acceptance: --log-file a.log: ", "acceptance: --log-level DEBUG: "))
    assert said.endswith(f": {rule}. Hint: leave it out; `| tee FILE` keeps what is printed\n")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("nvcr.io/nvidia/pytorch:24.02-py3", "nvcr.io_nvidia__pytorch__24.02-py3.sqsh"),
        ("nvcr.io#nvidia/pytorch:24.02-py3", "nvcr.io_nvidia__pytorch__24.02-py3.sqsh"),
        ("ubuntu:22.04", "ubuntu__22.04.sqsh"),
        ("docker://a.b:5000/x/y", "a.b:5000_x__y__notag.sqsh"),
    ],
)
def test_the_file_of_a_cached_image(url: str, name: str) -> None:
    assert cached_name(url) == name
