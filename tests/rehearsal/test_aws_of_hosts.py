"""The hosts' AWS CLI, loaded once: what a call sees and returns is that of a program that is started for it."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

STANDIN = Path(__file__).resolve().parents[2] / "rehearsal/standins/aws"
MAIN = """\
import json, os, sys, time
def main():
    print(json.dumps([sys.argv, os.getcwd(), os.environ.get("COLOUR"), os.environ.get("SERVER"), os.getppid()]))
    print("to stderr", sys.stdin.read(), file=sys.stderr)
    if sys.argv[1] == "exit": sys.exit(int(sys.argv[2]))
    if sys.argv[1] == "raise": raise ValueError("no answer")
    if sys.argv[1] == "wait":
        open("waits", "w").write(str(os.getpid()))
        time.sleep(60)
    return 0
class create_clidriver:
    def __init__(self): self.session = self
    def get_available_services(self): pass
    def create_client(self, service, region_name): pass
if __name__ == "__main__": sys.exit(main())
"""


@pytest.fixture
def aws(tmp_path: Path) -> Path:
    """The stand-in with a CLI that shows what it gets."""
    package = tmp_path / "awscli"
    for name in ("", "customizations", "customizations/s3"):
        (package / name).mkdir()
        (package / name / "__init__.py").touch()
    (package / "__init__.py").write_text('import os\nos.environ["AWS_DATA_PATH"] = "data"\n')
    (package / "clidriver.py").write_text(MAIN)
    (package / "__main__.py").write_text(MAIN)
    (package / "customizations/s3/s3.py").touch()
    (tmp_path / "botocore").mkdir()
    (tmp_path / "botocore/session.py").write_text("def create_loader(): pass\n")
    program = tmp_path / "aws"
    text = STANDIN.read_text(encoding="utf-8")
    program.write_text(text.replace("/run/", f"{tmp_path}/").replace("/opt/rehearsal/aws", str(tmp_path)))
    program.chmod(0o755)
    return program


@pytest.fixture
def served(aws: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The server with its socket as file 3, as systemd starts it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(aws.with_name("rehearsal-aws.sock")))
        listener.listen()
        start = ["bash", "-c", f'exec "$0" --rehearsal-serve 3<&{listener.fileno()}', aws]
        environment = {"SERVER": "yes", "PATH": os.environ["PATH"]}
        server = subprocess.Popen(start, env=environment, pass_fds=[listener.fileno()])
        yield server
        server.kill()
        server.wait()


def run(aws: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"COLOUR": "red", "PATH": os.environ["PATH"]}
    return subprocess.run(
        [aws, *arguments], cwd="/usr", env=environment, input="given", capture_output=True, text=True, timeout=90
    )


def expected(program: str, argument: str, *more: str) -> str:
    words = ", ".join(f'"{word}"' for word in (program, argument, *more))
    return f'[[{words}], "/usr", "red", null, '


@pytest.mark.parametrize(("arguments", "code"), [(["s3", "a b"], 0), (["exit", "7"], 7), (["raise"], 1)])
def test_a_call_has_its_callers_world(
    aws: Path, served: subprocess.Popen[bytes], arguments: list[str], code: int
) -> None:
    done = run(aws, *arguments)
    assert done.stdout == f"{expected('aws', *arguments)}{served.pid}]\n"
    assert done.stderr.startswith("to stderr given\n")
    assert ("ValueError: no answer" in done.stderr) == (arguments == ["raise"])
    assert done.returncode == code


def test_without_a_server_the_cli_is_started(aws: Path) -> None:
    done = run(aws, "exit", "7")
    assert done.returncode == 7
    assert done.stdout.startswith(expected(str(aws.with_name("awscli") / "__main__.py"), "exit", "7"))


def test_a_caller_that_is_killed_takes_its_call_with_it(aws: Path, served: subprocess.Popen[bytes]) -> None:
    caller = subprocess.Popen([aws, "wait"], cwd=aws.parent, stdin=subprocess.DEVNULL)
    waits, deadline = aws.with_name("waits"), time.monotonic() + 90
    while not (waits.exists() and waits.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    caller.terminate()
    caller.wait()
    while Path(f"/proc/{waits.read_text()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert run(aws, "s3").returncode == 0
    assert served.poll() is None
