"""tools/setup.sh with fake programs where the real ones take minutes: they log their arguments and do the least."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")
SYSTEM = (
    "basename", "bash", "cat", "chown", "chmod", "comm", "cut", "date", "df", "dirname", "find", "flock", "grep", "id", "ls", "mkdir",
    "mktemp", "rm", "sed", "sha256sum", "sleep", "sort", "stat", "tail", "tr", "touch",
)  # fmt: skip

# A Python of FAKE version: it answers the question of setup::fits, makes an "environment" that contains itself, and logs.
PYTHON = """#!/bin/bash
echo "$(basename "$0") $*" >>"$LOG"
case $* in
*version_info*) exit %(old)d ;;
*"-m venv"*) mkdir -p "$3/bin" && sed 's/exit %(old)d/exit 0/' "$0" >"$3/bin/python" && chmod +x "$3/bin/python" && echo "#!$PWD/$3/bin/python" >"$3/bin/pip" ;;
*"pip list"*) printf '%%s\\n' ${INSTALLED:-} ;;
*"pip install"*"--editable"*) touch "$(dirname "$0")/slipway" && chmod +x "$(dirname "$0")/slipway" ;;
*"pip install"*) until [[ ! -e $LOG.hold ]]; do sleep 0.1; done; echo "pip ended" >>"$LOG"; exit "${PIP_CODE:-0}" ;;
esac
"""
NPM = """#!/bin/bash
echo "npm $*" >>"$LOG"
[[ -z ${NPM_ERROR:-} ]] || { echo "npm error code $NPM_ERROR" >&2; exit 1; }
mkdir -p node_modules
"""


class Machine:
    """A checkout with the files that the set-up reads, and a PATH with the system's tools and the fakes only."""

    def __init__(self, folder: Path, checkout: str = "checkout") -> None:
        self.checkout, self.bin, self.log = folder / checkout, folder / "bin", folder / "log"
        self.checkout.mkdir()
        self.bin.mkdir()
        self.log.touch(mode=0o666)
        shutil.copytree(ROOT / "tools", self.checkout / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "package-lock.json", *(file.name for file in ROOT.glob("requirements*.txt"))):
            shutil.copy(ROOT / name, self.checkout / name)
        for name in SYSTEM:
            tool = shutil.which(name)
            assert tool, name
            (self.bin / name).symlink_to(tool)
        self.program("npm", NPM)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text, encoding="utf-8")
        (self.bin / name).chmod(0o755)

    def python(self, name: str, *, fits: bool = True) -> None:
        self.program(name, PYTHON % {"old": 0 if fits else 1})

    def start(self, *parts: str, user: int | None = None, **variables: str) -> subprocess.Popen[str]:
        environment = {"PATH": str(self.bin), "LOG": str(self.log), "HOME": str(self.checkout), **variables}
        command = [str(self.checkout / "tools/setup.sh"), *parts]
        return subprocess.Popen(
            command, env=environment, user=user, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *parts: str, user: int | None = None, **variables: str) -> tuple[int, str, str]:
        process = self.start(*parts, user=user, **variables)
        out, err = process.communicate(timeout=300)  # a real pip, in one test
        return process.returncode, out, err

    def calls(self, words: str) -> list[str]:
        return [line for line in self.log.read_text("utf-8").splitlines() if words in line]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.python("python3")
    return made


def faults(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("setup: FAULT ")]


def test_what_is_set_up_once_is_up_to_date(machine: Machine) -> None:
    assert machine.run("deploy")[0] == 0
    assert machine.run("deploy")[:2] == (0, "setup: .venv is up to date\nsetup: node_modules is up to date\n")
    assert (len(machine.calls("-m venv")), len(machine.calls("--editable")), len(machine.calls("npm ci"))) == (1, 1, 1)


def test_other_pins_are_installed_into_the_environment_that_is_there(machine: Machine) -> None:
    machine.run("rehearsal")
    with (machine.checkout / "requirements-rehearsal.txt").open("a", encoding="utf-8") as file:
        file.write("left-pad==1.0\n")
    assert machine.run("rehearsal", INSTALLED="moto==5.2.5 old_Package==1 ruamel.yaml==0.19.1")[0] == 0
    assert len(machine.calls("-m venv")) == 1
    assert len(machine.calls("pip install")) == 2
    assert [line.split()[-1] for line in machine.calls("pip uninstall")] == ["old-package"]


def test_a_half_made_environment_is_built_anew(machine: Machine) -> None:
    assert machine.run("pcluster", PIP_CODE="1")[0] == 3
    assert machine.run("pcluster")[0] == 0
    assert len(machine.calls("-m venv")) == 2


def test_a_moved_checkout_is_built_anew(machine: Machine) -> None:
    machine.run("pcluster")
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("moved"))
    assert machine.run("pcluster")[0] == 0
    assert len(machine.calls("-m venv")) == 2


def test_a_symbolic_link_to_the_checkout_is_the_same_place(machine: Machine) -> None:
    machine.run("pcluster")
    link = machine.checkout.with_name("link")
    link.symlink_to(machine.checkout)
    machine.checkout = link
    assert machine.run("pcluster")[1] == "setup: .venv-pcluster is up to date\n"


def test_a_failure_of_pip_is_one_fault(machine: Machine) -> None:
    code, _, err = machine.run("pcluster", PIP_CODE="1")
    assert code == 3
    assert faults(err) == [
        "setup: FAULT pip could not install requirements-pcluster.txt into .venv-pcluster (see above). "
        "Hint: is the package index reachable?"
    ]


@pytest.mark.parametrize(
    ("old", "new", "used"),
    [
        ((), ("python3", "python3.12"), "python3"),
        (("python3",), ("python3.11",), "python3.11"),
        (("python3",), ("python3.11", "python3.12"), "python3.12"),
    ],
)
def test_which_python(tmp_path: Path, old: tuple[str, ...], new: tuple[str, ...], used: str) -> None:
    machine = Machine(tmp_path)
    for name in (*old, *new):
        machine.python(name, fits=name in new)
    assert machine.run("pcluster")[0] == 0
    assert machine.calls("-m venv") == [f"{used} -m venv .venv-pcluster"]


def test_the_users_python_comes_first(machine: Machine, tmp_path: Path) -> None:
    machine.python("snake")
    assert machine.run("pcluster", PYTHON=str(tmp_path / "bin/snake"))[0] == 0
    assert machine.calls("-m venv") == ["snake -m venv .venv-pcluster"]


def test_python_3_10_is_refused_with_the_packages_of_ubuntu(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.python("python3", fits=False)
    code, _, err = machine.run("deploy")
    assert code == 3
    assert err == (
        "setup: FAULT no Python 3.11 or newer with the venv module. Hint: sudo apt-get install --no-install-recommends "
        "python3.11 python3.11-venv; or set PYTHON=/path/to/python3.11\n"
    )


@AS_ROOT
def test_amazon_linux_gets_the_packages_of_dnf(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.python("python3", fits=False)
    machine.program("dnf", "#!/bin/bash\n")
    code, _, err = machine.run("deploy")
    assert (code, "Hint: sudo dnf install python3.11; or set PYTHON=" in err) == (3, True)
    machine.python("python3.11")
    (machine.bin / "npm").unlink()
    code, _, err = machine.run("deploy")
    assert (code, "npm (sudo dnf install nodejs22 nodejs22-npm)" in err) == (3, True)


def test_root_installs_the_python_that_is_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.python("python3", fits=False)
    machine.program("apt-get", '#!/bin/bash\necho "apt-get $*" >>"$LOG"\n[[ $1 == update ]] || cp_it\n')
    machine.python("spare")
    text = f'#!/bin/bash\necho "apt-get $*" >>"$LOG"\n[[ $1 == update ]] || /bin/cp {machine.bin}/spare {machine.bin}/python3.11\n'
    machine.program("apt-get", text)
    assert machine.run("pcluster")[0] == 0
    assert next(line.split()[-2:] for line in machine.calls(" install ")) == ["python3.11", "python3.11-venv"]
    assert machine.calls("-m venv") == ["python3.11 -m venv .venv-pcluster"]


def test_no_cache_is_left(machine: Machine, tmp_path: Path) -> None:
    """AWS CloudShell's home has 1 GB; tests/stacks/test_cloudshell.py runs the set-up in a home of that size."""
    assert machine.run("deploy", TMPDIR=str(tmp_path))[0] == 0
    installs = machine.calls("pip install")
    assert installs
    assert all("--no-cache-dir" in call or "--no-index" in call for call in installs)
    (npm,) = machine.calls("npm ci")
    cache = Path(npm.rpartition("--cache ")[2])
    assert (cache.parent, cache.exists()) == (tmp_path, False)


def test_the_error_of_npm_is_shown(machine: Machine) -> None:
    code, _, err = machine.run("deploy", NPM_ERROR="SELF_SIGNED_CERT_IN_CHAIN")
    assert code == 3
    assert "npm error code SELF_SIGNED_CERT_IN_CHAIN" in err
    assert faults(err) == ["setup: FAULT npm ci failed (see above). Hint: is the npm registry reachable?"]
    _, _, err = machine.run("deploy", NPM_ERROR="ENOSPC")
    assert faults(err)[0].startswith("setup: FAULT npm ci failed (see above). Hint: a file system is full; free: "), err


@AS_ROOT
def test_a_full_file_system_is_named(tmp_path: Path) -> None:
    """The real Python and pip, on a file system for the environment and not for what is installed into it."""
    small = tmp_path / "small"
    small.mkdir()
    with zipfile.ZipFile(tmp_path / "large-1-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("large/data", bytes(64 << 20))
        wheel.writestr("large-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1\n")
        wheel.writestr("large-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("large-1.dist-info/RECORD", "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=56m", "tmpfs", str(small)], check=True)
    try:
        machine = Machine(small)
        lines = f"large @ file://{tmp_path}/large-1-py3-none-any.whl\n"
        (machine.checkout / "requirements-pcluster.txt").write_text(lines, encoding="utf-8")
        code, _, err = machine.run("pcluster", PYTHON=sys.executable, TMPDIR=str(tmp_path))
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert code == 3
    assert "No space left on device" in err
    start = "setup: FAULT pip could not install requirements-pcluster.txt into .venv-pcluster (see above). "
    hint = rf"Hint: a file system is full; free: \d+ MB on {small}, \d+ MB on /"
    assert re.match(re.escape(start) + hint, faults(err)[0]), err


@pytest.mark.parametrize("part", ["deploy", "debian"])
def test_a_temporary_file_that_cannot_be_made_is_named(part: str, machine: Machine, tmp_path: Path) -> None:
    """As in a full /tmp: here the folder does not exist."""
    if part == "debian":
        machine.program("apt-get", "#!/bin/bash\n")
    code, _, err = machine.run(part, TMPDIR=str(tmp_path / "none"))
    rule = f"setup: FAULT {tmp_path}/none takes no temporary file (see above). Hint: make room there, or set TMPDIR to "
    assert (code, faults(err)) == (3, [f"{rule}another folder"]), err
    assert f"{tmp_path}/none/slipway-" in err


def test_a_full_temporary_folder_is_named_where_venv_hides_the_reason(machine: Machine) -> None:
    error = "Error: Command ensurepip returned non-zero exit status 1."
    machine.program("python3", f'#!/bin/bash\n[[ $* != *"-m venv"* ]] || {{ echo "{error}" >&2; exit 1; }}\n')
    (machine.bin / "df").unlink()
    machine.program("df", "#!/bin/bash\necho tmpfs 9 9 0 100% /small\n")
    code, _, err = machine.run("pcluster")
    rule = f"setup: FAULT {machine.bin}/python3 cannot make an environment (see above). "
    assert (code, faults(err)) == (3, [f"{rule}Hint: a file system is full; free: 0 MB on /small"]), err
    assert error in err
    (machine.bin / "df").write_text("#!/bin/bash\n", encoding="utf-8")
    assert "Hint: name another Python: PYTHON=" in faults(machine.run("pcluster")[2])[0]


def test_a_stamp_that_cannot_be_written_is_named(machine: Machine) -> None:
    machine.program("npm", "#!/bin/bash\nmkdir -p node_modules/.stamp\n")
    code, _, err = machine.run("deploy")
    rule = f"setup: FAULT {machine.checkout}/node_modules/.stamp cannot be written (see above). Hint: make room; free: "
    assert (code, [line[: len(rule)] for line in faults(err)]) == (3, [rule]), err


def test_two_at_once_work_one_after_the_other(machine: Machine) -> None:
    hold = machine.log.with_name("log.hold")
    hold.touch()
    first = machine.start("pcluster")
    until = time.monotonic() + 60
    while not machine.calls("pip install"):
        assert time.monotonic() < until
        time.sleep(0.05)
    second = machine.start("pcluster")
    assert second.stdout is not None
    assert "another set-up of this checkout runs; waiting" in second.stdout.readline()
    hold.unlink()
    assert "another set-up" not in first.communicate(timeout=60)[0]
    second.communicate(timeout=60)
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(machine.calls("-m venv")) == 1


@AS_ROOT
def test_what_sudo_made_belongs_to_the_user(machine: Machine) -> None:
    os.chown(machine.checkout, NOBODY, NOBODY)
    (machine.checkout / "rehearsals/one").mkdir(parents=True)
    assert machine.run("deploy", SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY))[0] == 0
    made = [path for name in (".venv", "node_modules", "rehearsals") for path in (machine.checkout / name).rglob("*")]
    assert len(made) > 4
    assert {path.stat().st_uid for path in made} == {NOBODY}
    assert (machine.checkout / "tools").stat().st_uid != NOBODY


@AS_ROOT
def test_root_keeps_what_is_made_in_a_checkout_of_root(machine: Machine) -> None:
    assert machine.run("pcluster", SUDO_UID=str(NOBODY), SUDO_GID=str(NOBODY))[0] == 0
    assert (machine.checkout / ".venv-pcluster/bin").stat().st_uid == os.geteuid()


@AS_ROOT
def test_an_environment_of_another_user_is_a_fault_with_a_hint(machine: Machine, tmp_path: Path) -> None:
    for folder in (*tmp_path.parents, tmp_path):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o755)
    machine.run("pcluster")
    for path in (machine.checkout, machine.checkout / "requirements-pcluster.txt"):
        os.chown(path, NOBODY, NOBODY)
    (machine.checkout / "requirements-pcluster.txt").write_text("other==1\n", encoding="utf-8")
    code, _, err = machine.run("pcluster", user=NOBODY)
    assert code == 3
    (fault,) = faults(err)
    assert f"{machine.checkout}/.venv-pcluster belongs to root and cannot be written. Hint: sudo chown -R " in fault


def test_an_unknown_part_is_a_fault(machine: Machine) -> None:
    code, _, err = machine.run("deplyo")
    assert (code, len(faults(err))) == (3, 1)
    assert err.startswith("setup: FAULT deplyo is not a part of the set-up. Hint: deploy, ")


def test_a_path_with_blanks_and_quotes(tmp_path: Path) -> None:
    """The real Python and pip: what is wrong with such a path is wrong in the scripts that they write."""
    machine = Machine(tmp_path, checkout="sp ace's")
    for name in ("slipway", "acceptance", "gpusuite", "stacks", "nodes", "headnode", "compute", "templates", "clusters", "app.py",
                 "cdk.json", "README.md", "LICENSE"):  # fmt: skip
        (machine.checkout / name).symlink_to(ROOT / name)
    (machine.checkout / "requirements.txt").write_text("# none: they come by PYTHONPATH\n", encoding="utf-8")
    variables = {"PYTHON": sys.executable, "PYTHONPATH": sysconfig.get_path("purelib")}
    code, _, err = machine.run("deploy", **variables)
    assert (code, err) == (0, "")
    command = [str(machine.checkout / ".venv/bin/slipway"), "--version"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, **variables})
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("name", ["my dir/x.yaml", "it's.yaml"])
def test_a_settings_file_with_blanks_or_quotes_is_one_word(name: str, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(f"include {ROOT}/Makefile\n", encoding="utf-8")
    for program in (".venv/bin/slipway", "tools/setup.sh"):
        (tmp_path / program).parent.mkdir(parents=True)
        (tmp_path / program).write_text('#!/bin/bash\nprintf "<%s>" "$@"\n', encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    ended = subprocess.run(
        ["make", "--no-print-directory", "rehearse", f"SETTINGS={name}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert f"<rehearse><{name}>" in ended.stdout
