"""CloudAI's guide of 2024, section by section: its fields as lines of the script, its commands as it writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from acceptance.cli import main

SYSTEM = """
name = "atlas"
scheduler = "slurm"
install_path = "./install"
output_path = "./results"
cache_docker_images_locally = "True"
default_partition = "train"
mpi = "pmix"
gpus_per_node = 4
ntasks_per_node = 4
{system}
[partitions.train]
name = "train"
nodes = ["gpu-[01-08]"]
[partitions.train.groups.row]
name = "row"
nodes = ["gpu-[05-08]"]
[global_env_vars]
NCCL_IB_TIMEOUT = "22"
{variables}
"""
TEST = """
name = "pairs"
description = "sendrecv"
test_template_name = "NcclTest"
extra_cmd_args = "--stepfactor 4"
{test}
[cmd_args]
"subtest_name" = "sendrecv_perf_mpi"
"maxbytes" = "2G"
"""
SCENARIO = """
name = "survey"
{scenario}
[[Tests]]
id = "Tests.1"
test_name = "pairs"
{run}
"""
HOOK = 'name = "{name}"\n[[Tests]]\nid = "Tests.1"\ntest_name = "{test}"\ntime_limit = "00:05:00"\n'
FILES = ["--test-scenario", "survey/scenario.toml", "--system-config", "survey/system.toml"]
FILES += ["--tests-dir", "survey/tests/"]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with hooks in conf/hook as the guide has them."""
    hooks = {f"conf/hook/{name}.toml": HOOK.format(name=name, test=f"{name}-pairs") for name in ("before", "after")}
    tests = {
        f"conf/hook/test/{name}.toml": TEST.format(test="").replace('"pairs"', f'"{name}-pairs"')
        for name in ("before", "after")
    }
    for name, text in {**hooks, **tests}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(tree: Path, **parts: str) -> None:
    """Write the three files, with further lines in the parts that are named."""
    texts = {"system": "", "variables": "", "test": "", "scenario": "", "run": "", **parts}
    (tree / "survey/tests").mkdir(parents=True)
    for name, text in (("system", SYSTEM), ("tests/pairs", TEST), ("scenario", SCENARIO)):
        (tree / f"survey/{name}.toml").write_text(text.format(**texts))


def script_of(tree: Path, **parts: str) -> str:
    """The script and the variables of the one job."""
    write(tree, **parts)
    assert main(["dry-run", *FILES]) == 0
    (folder,) = (tree / "results").glob("survey_*/Tests.1/0")
    text = "".join((folder / name).read_text() for name in ("cloudai_sbatch_script.sh", "env_vars.sh"))
    return text.replace(str(folder), "JOB").replace(str(tree), "HERE")


NSYS = """
[nsys]
nsys_binary = "/opt/nsys"
task = "launch"
output = "o"
sample = "cpu"
trace = "cuda"
force_overwrite = true
capture_range = "nvtx"
capture_range_end = "stop"
cuda_graph_trace = "node"
gpu_metrics_devices = "all"
extra_args = ["--stats=true"]
"""


@pytest.mark.parametrize(
    ("part", "lines", "written"),
    [
        ("system", "", "--container-image=HERE/install/nvcr.io_nvidia__pytorch__24.02-py3.sqsh"),
        ("system", 'extra_sbatch_args = ["--qos=high", "--comment x"]', "#SBATCH --qos=high\n#SBATCH --comment x\n"),
        ("system", 'extra_srun_args = "--label --kill-on-bad-exit=1"', "  --label --kill-on-bad-exit=1 \\\n"),
        ("system", 'account = "ml"', "#SBATCH --account=ml\n"),
        ("system", 'distribution = "block"', "#SBATCH --distribution=block\n"),
        ("system", "container_mount_home = true", "JOB:JOB \\\n  bash -c"),  # without --no-container-mount-home
        ("variables", 'NCCL_ALGO = "Ring Tree"', "export NCCL_ALGO='Ring Tree'\n"),
        ("variables", 'NCCL_TOPO_FILE = "/etc/topo.xml"', "JOB:JOB,/etc/topo.xml:/etc/topo.xml \\\n"),
        ("test", "", "sendrecv_perf_mpi --nthreads 1 --ngpus 1 --minbytes 32M --maxbytes 2G "),
        ("test", "", " --cudagraph 0 --stepfactor 4'"),
        ("test", 'extra_container_mounts = ["/a:/b", "/c:/d"]', "JOB:JOB,/a:/b,/c:/d \\\n"),
        ("test", '[extra_env_vars]\nNCCL_IB_TIMEOUT = "20"', "export NCCL_IB_TIMEOUT=20\n"),  # the test's wins
        (
            "test",
            NSYS,
            "; /opt/nsys launch -s cpu -o o -t cuda --force-overwrite=true --capture-range=nvtx"
            " --capture-range-end=stop --cuda-graph-trace=node --gpu-metrics-devices=all --stats=true sendrecv_perf_mpi",
        ),
        ("test", "[nsys]\nenable = false", "env_vars.sh; sendrecv_perf_mpi"),
        ("test", "[nsys]", "env_vars.sh; nsys profile sendrecv_perf_mpi"),
        ("run", 'num_nodes = "2"', "#SBATCH --nodes=2\n"),
        ("run", 'num_nodes = 2\nexclude_nodes = ["gpu-03"]', "#SBATCH --exclude=gpu-03\n"),
        (
            "run",
            'nodes = ["gpu-02", "gpu-01"]',
            "SLURM_HOSTFILE=JOB/hostfile.txt srun \\\n  --distribution=arbitrary \\\n",
        ),
        ("run", 'nodes = ["train:row:2"]', "#SBATCH --nodelist=gpu-05,gpu-06\n"),
        ("run", 'nodes = ["train:row:max_avail"]', "#SBATCH --nodelist=gpu-05,gpu-06,gpu-07,gpu-08\n"),
        ("run", 'time_limit = "00:20:00"', "#SBATCH --time=00:20:00\n"),
        ("run", 'extra_srun_args = "--overlap"', "  --overlap \\\n"),
        ("scenario", 'pre_test = "before"\npost_test = "after"', "note begin pre_test before-pairs\n"),
        ("scenario", 'pre_test = "before"\npost_test = "after"', "note begin post_test after-pairs\n"),
    ],
)
def test_a_field_of_the_guide_is_in_the_script(part: str, lines: str, written: str, tree: Path) -> None:
    assert written in script_of(tree, **{part: lines})


def test_the_commands_of_the_guide_from_its_directory(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tree)
    assert main(["verify-configs", "survey"]) == 0
    assert main(["install", "--system-config", "survey/system.toml", "--tests-dir", "survey/tests/"]) == 3
    assert "download-ngc-containers.sh: is not there, and it imports the images" in capsys.readouterr().err
    assert main(["run", *FILES]) == 2  # the image is not installed
    assert "Hint: acceptance install --system-config survey/system.toml" in capsys.readouterr().err
    assert not (tree / "results").exists()
    assert main(["dry-run", *FILES]) == 0
    (folder,) = (tree / "results").iterdir()
    assert main(["generate-report", *FILES, "--result-dir", f"results/{folder.name}/"]) == 3
    assert "Tests.1  not run  job: was not submitted" in capsys.readouterr().out
    assert (folder / "report.html").exists()
    assert main(["uninstall", *FILES]) == 0
    assert main(["generate-report", *FILES, "--result-dir", "results/2024-06-18_17-40-13/"]) == 2
    assert "Hint: give the folder that run or dry-run wrote" in capsys.readouterr().err


def test_the_partition_that_the_guide_leaves_to_its_reader(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tree)
    path = tree / "survey/system.toml"
    text = path.read_text()
    path.write_text(text.replace("train", "<YOUR PARTITION NAME>"))
    assert main(["verify-configs", "survey/system.toml"]) == 2
    assert "survey/system.toml:12:13: is not TOML: " in capsys.readouterr().out
    path.write_text(text.replace('"train"', '"<YOUR PARTITION NAME>"'))
    assert main(["verify-configs", "survey/system.toml"]) == 2
    assert 'default_partition = "<YOUR PARTITION NAME>": has a placeholder in <>' in capsys.readouterr().out
