"""The data repository: what is posted, tried again, kept and posted later; the token is in no output and no file."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from acceptance.cli import main
from acceptance.cloudai import post
from acceptance.cloudai.post import post_results
from acceptance.cloudai.report import scenario_report
from acceptance.cloudai.stored import FILE, StoredJob, StoredPlan, StoredTest
from acceptance.runner.follow import JobOutcome
from acceptance.runner.record import RunRecord, TestRecord
from acceptance.text import without_password

TOKEN = "secret-token-1"
STEP = "Training epoch 0, iteration {n}/2 | global_step: {n} | train_step_timing in s: {t}\n"


class Repository(HTTPServer):
    """Answers with the codes in `answers`, then with 200; keeps what it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[int] = []
        self.got: list[tuple[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.got.append((self.headers["Authorization"], body))
        code = self.server.answers.pop(0) if self.server.answers else 200
        self.send_response(code)
        if code == 307:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def repository() -> Iterator[Repository]:
    server = Repository()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(post, "_PAUSE_S", 0.0)
    (tmp_path / ".cloudai.toml").write_text(f'[data_repository]\ntoken = "{TOKEN}"\n')


def folder_of(tmp_path: Path, endpoint: str) -> Path:
    """A folder of one NeMoRun, which has figures, and one BashCmd, which has none."""
    folder = tmp_path / "run"
    jobs = tuple(
        StoredJob(
            number, name, f"{name}/0", 0, 0, 2, (), 8, "-", (), False, False, None, "x",
            {"docker_image_url": "i:1"}, {}, {}, {}, (),
        )
        for number, name in enumerate(("model", "other"), 1)
    )  # fmt: skip
    tests = (StoredTest("model", "m", "NeMoRun", "", ()), StoredTest("other", "o", "BashCmd", "", ()))
    access = {"endpoint": endpoint, "verify_certs": True}
    for job in jobs:
        (folder / job.path).mkdir(parents=True)
    plan = StoredPlan("s", "sys", "train", 8, tests, jobs, (), "standalone", data_repository=access)
    (folder / FILE).write_text(plan.text())
    (folder / "model/0/stdout.txt").write_text("".join(STEP.format(n=n, t=t) for n, t in enumerate((9, 2, 4))))
    (folder / "model/0/stderr.txt").write_text("`max_steps=3` reached.\n")
    outcome = JobOutcome(1, "COMPLETED", 0, ["gpu-1"], 9, "done", "the job ended well")
    records = [TestRecord(job.path, f"{job.path}/stdout.txt", ["x"], job.number, outcome) for job in jobs]
    RunRecord("run", "2026-11-29T10:00:00Z", "scenario", tests=records).write(folder)
    return folder


def posted(folder: Path) -> list[str]:
    said: list[str] = []
    post_results(folder, scenario_report(folder), said.append)
    assert TOKEN not in "".join(said)
    assert not [path for path in folder.rglob("*") if path.is_file() and TOKEN in path.read_text()]
    return said


def test_a_test_with_figures_is_posted_once(repository: Repository, tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{repository.server_port}/data"
    folder = folder_of(tmp_path, endpoint)
    assert posted(folder) == [f"data repository: 1 posted to {endpoint}"]
    ((authorization, body),) = repository.got
    assert authorization == f"Bearer {TOKEN}"
    (entry,) = body
    assert entry["figures"]["step time, mean"] == {"value": 3.0, "unit": "s"}
    assert (entry["job"], entry["template"], entry["image"], entry["num_nodes"]) == ("model/0", "NeMoRun", "i:1", 2)
    assert posted(folder) == []
    assert len(repository.got) == 1


def test_generate_report_posts(repository: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endpoint = f"http://127.0.0.1:{repository.server_port}/data"
    folder = folder_of(tmp_path, endpoint)
    assert main(["generate-report", "--result-dir", str(folder)]) == 0
    captured = capsys.readouterr()
    assert f"data repository: 1 posted to {endpoint}\n" in captured.err
    assert TOKEN not in captured.out + captured.err
    assert without_password("https://ann:pass@host/data") == "https://host/data"


@pytest.mark.parametrize(
    ("answers", "tries", "words"),
    [
        ([503, 429], 3, "1 posted to"),
        ([503, 503, 503], 3, "answered 503 Service Unavailable (3 tries); kept: acceptance generate-report"),
        ([401], 1, "answered 401 Unauthorized. Hint: is the token valid?; kept: "),
        ([404], 1, "answered 404 Not Found. Hint: is data_repository.endpoint right?; kept: "),
        ([307], 1, "answered 307 Temporary Redirect. Hint: is data_repository.endpoint right?; kept: "),
    ],
)
def test_a_failure_is_tried_again_or_kept_and_posted_later(
    answers: list[int], tries: int, words: str, repository: Repository, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, f"http://127.0.0.1:{repository.server_port}/data")
    repository.answers = list(answers)
    (said,) = posted(folder)
    assert words in said
    assert len(repository.got) == tries
    if "kept" in words:
        assert "1 posted to" in posted(folder)[0]


def test_a_repository_that_is_down(tmp_path: Path) -> None:
    (said,) = posted(folder_of(tmp_path, "http://127.0.0.1:9/data"))
    assert said.startswith("data repository: http://127.0.0.1:9/data: [Errno 111] Connection refused (3 tries); kept: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ".cloudai.toml: does not exist in the current directory, and it has the token of the data repository."),
        (f"token = {TOKEN}", ".cloudai.toml: is not TOML. Hint: write [data_repository] token ="),
        ("", ".cloudai.toml: its token must be a text of one line of ASCII characters. Hint: write"),
        (f'[data_repository]\ntoken = "{TOKEN}\\nX: y"', ".cloudai.toml: its token must be a text of one line"),
    ],
)
def test_a_token_that_cannot_be_used(text: str | None, words: str, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "http://127.0.0.1:9/data")
    (tmp_path / ".cloudai.toml").unlink()
    if text is not None:
        (tmp_path / ".cloudai.toml").write_text(text)
    (said,) = posted(folder)
    assert said.startswith(f"data repository: {words}")


def test_an_endpoint_of_another_kind(tmp_path: Path) -> None:
    (said,) = posted(folder_of(tmp_path, "file:///etc/passwd"))
    assert "'file:///etc/passwd' is not an address of http or https. Hint: correct data_repository.endpoint" in said


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9/a b", "http://[::1/", "http://127.0.0.1:9/\xe4"])
def test_an_endpoint_that_is_no_address(endpoint: str, tmp_path: Path) -> None:
    (said,) = posted(folder_of(tmp_path, endpoint))
    assert said.startswith(f"data repository: {endpoint}: ")
    assert "Hint: correct data_repository.endpoint" in said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http.client.BadStatusLine(f"{TOKEN} \x1b[31m"), "http://h/: (the token) ?[31m (3 tries); kept: "),
        (http.client.LineTooLong("header line"), "http://h/: got more than 65536 bytes when reading header line"),
    ],
)
def test_an_answer_that_is_no_http(
    answer: Exception, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post.urllib.request, "build_opener", Mock(return_value=Mock(open=Mock(side_effect=answer))))
    (said,) = posted(folder_of(tmp_path, "http://h/"))
    assert words in said
