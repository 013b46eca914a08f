"""The data repository of a system: what a scenario measured is posted to an endpoint over HTTP.

As CloudAI does for NeMoRun (http_data_repository.py): a POST of a list of one entry, with the token of `.cloudai.toml`
in the current directory. Here every test with figures is posted, a failure is tried again, and what could not be posted
is kept: the folder knows which tests were posted, and `generate-report` posts the others.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from acceptance.cloudai.stored import StoredJob, StoredPlan, read_plan
from acceptance.cloudai.toml_file import read_toml
from acceptance.errors import InputError
from acceptance.report import Report
from acceptance.report.model import TestReport
from acceptance.runner.files import read_plain, write_whole
from acceptance.text import printable, without_password

TOKEN_FILE = Path(".cloudai.toml")
POSTED = "posted.json"  # the paths of the jobs that were posted
_TRIES, _PAUSE_S, _TIMEOUT_S = 3, 2.0, 30
_LONGEST_REASON = 200  # characters of a server's answer that a message repeats
_AGAIN = (408, 425, 429, 500, 502, 503, 504)  # answers of HTTP after which another try may help
Say = Callable[[str], None]


def post_results(folder: Path, report: Report, say: Say) -> None:
    """Post the tests with figures that were not posted yet; never raises: a report is whole without it."""
    plan = read_plan(folder)
    if plan.data_repository is None:
        return
    posted = _posted(folder)
    left = [(job, test) for job, test in zip(plan.jobs, report.tests) if job.path not in posted and _measured(test)]
    endpoint, verify = str(plan.data_repository["endpoint"]), bool(plan.data_repository["verify_certs"])
    token = ""
    try:
        token = _token() if left else ""
        for job, test in left:
            _post(endpoint, token, _entry(plan, job, test, report), verify)
            posted.append(job.path)
            write_whole(folder / POSTED, json.dumps(posted) + "\n")
    except (InputError, OSError, ValueError) as error:
        words = printable(str(error).replace(token, "(the token)") if token else str(error))  # a server may repeat it
        say(f"data repository: {words}; kept: acceptance generate-report --result-dir {folder} posts it later")
    else:
        if left:
            say(f"data repository: {len(left)} posted to {without_password(endpoint)}")


def _posted(folder: Path) -> list[str]:
    try:
        return list(map(str, json.loads(read_plain(folder / POSTED))))
    except (OSError, ValueError, TypeError):
        return []


def _measured(test: TestReport) -> bool:
    return bool(test.figures or test.rows)


def _token() -> str:
    """Return the token. Raises InputError; no message contains it."""
    hint = 'Hint: write [data_repository] token = "..." into it'
    if not TOKEN_FILE.exists():
        rule = "does not exist in the current directory, and it has the token of the data repository"
        raise InputError([f"{TOKEN_FILE}: {rule}. {hint}"])
    try:
        table = read_toml(TOKEN_FILE).data.get("data_repository")
    except InputError:  # its words may quote the file
        raise InputError([f"{TOKEN_FILE}: is not TOML. {hint}"]) from None
    token = table.get("token") if isinstance(table, dict) else None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token.strip():
        raise InputError([f"{TOKEN_FILE}: its token must be a text of one line of ASCII characters. {hint}"])
    return token.strip()


def _entry(plan: StoredPlan, job: StoredJob, test: TestReport, report: Report) -> dict[str, Any]:
    figures: dict[str, Any] = {one.name: {"value": one.value, "unit": one.unit} for one in test.figures}
    for row in test.rows:
        figures[f"bus bandwidth at {row.size} bytes"] = {"value": row.measured_busbw_gb_per_s, "unit": "GB/s"}
    return {
        "run": report.run_id,
        "system": plan.system,
        "cluster": report.cluster,
        "instance_type": report.instance_type,
        "scenario": plan.scenario,
        "test": job.test,
        "job": job.path,
        "template": plan.test(job).template,
        "image": job.arguments.get("docker_image_url"),
        "num_nodes": job.nodes,
        "point": dict(job.point),
        "verdict": test.verdict,
        "figures": figures,
    }


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An answer that names another address is a failure: urllib would send the token there too."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(endpoint: str, token: str, entry: Mapping[str, Any], verify: bool) -> None:
    """Post one entry, three times at most. Raises ValueError."""
    shown = without_password(endpoint)
    if not endpoint.startswith(("https://", "http://")):
        rule = "is not an address of http or https. Hint: correct data_repository.endpoint of the system's file"
        raise ValueError(f"{shown!r} {rule}")
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
    body = json.dumps([entry], default=str).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for number in range(1, _TRIES + 1):
        try:
            request = urllib.request.Request(endpoint, body, headers, method="POST")  # noqa: S310 (scheme is checked)
            with opener.open(request, timeout=_TIMEOUT_S):
                return
        except urllib.error.HTTPError as error:
            fault = f"{shown} answered {error.code} {str(error.reason)[:_LONGEST_REASON]}"
            error.close()
            if error.code not in _AGAIN:
                hint = "is the token valid?" if error.code in (401, 403) else "is data_repository.endpoint right?"
                raise ValueError(f"{fault}. Hint: {hint}") from None
        except urllib.error.URLError as error:
            fault = f"{shown}: {error.reason}"
        except (http.client.InvalidURL, ValueError) as error:
            hint = "Hint: correct data_repository.endpoint of the system's file"
            raise ValueError(f"{shown}: {without_password(str(error))}. {hint}") from None
        except (OSError, http.client.HTTPException) as error:  # the latter: what answers does not speak HTTP
            fault = f"{shown}: {str(error)[:_LONGEST_REASON]}"
        if number == _TRIES:
            raise ValueError(f"{fault} ({_TRIES} tries)")
        time.sleep(_PAUSE_S * number)
