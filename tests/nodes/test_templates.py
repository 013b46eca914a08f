"""The templates, filled by render.py as on a node, and judged by the programs and schemas that read them.

Prometheus' configuration is made of every example's own values; the CloudWatch agent's is in test_cloudwatch.py.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import jinja2
import pytest

from slipway import bundle
from slipway.settings import load_settings

from .conftest import NODE_ENV, ROOT

EXAMPLES = sorted((ROOT / "clusters").glob("*.yaml"))
AMP = "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1/api/v1/remote_write"


def render(template: str, tmp_path: Path, *pairs: str, **values: str) -> subprocess.CompletedProcess[str]:
    """Fill a template; the result is in the file `out`, where there is one."""
    env = tmp_path / "node.env"
    env.write_text("".join(f"{key}={value}\n" for key, value in {**NODE_ENV, **values}.items()))
    done = run(ROOT / "templates" / template, env, *pairs)
    if done.returncode == 0:
        (tmp_path / "out").write_text(done.stdout)
    return done


def run(template: Path, env: Path, *pairs: str) -> subprocess.CompletedProcess[str]:
    """Run render.py as file::render does."""
    command = ["/usr/bin/python3", "-I", "-S", str(ROOT / "nodes/lib/render.py"), str(template), str(env), *pairs]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def check_config(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Let promtool judge what was rendered."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    command = [promtool, "check", "config", str(tmp_path / "out")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("url", ["", AMP])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_promtool_accepts_the_configuration_of_every_example(example: Path, url: str, tmp_path: Path) -> None:
    values = bundle.node_env_values(load_settings(example))
    assert render("prometheus.yml.j2", tmp_path, **{**values, "AMP_REMOTE_WRITE_URL": url}).returncode == 0
    done = check_config(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "out").read_text()
    assert ("remote_write:" in text) == bool(url)
    assert f'region: "{values["REGION"]}"' in text
    assert text.count("job_name: ") == 4


@pytest.mark.parametrize("name", ['quo"te', "colon: # hash"])
def test_promtool_accepts_any_name(name: str, tmp_path: Path) -> None:
    assert render("prometheus.yml.j2", tmp_path, CLUSTER_NAME=name).returncode == 0
    assert check_config(tmp_path).returncode == 0


@pytest.mark.parametrize("url", ["https://[x/write", "https://host:port/write", "%zz"])
def test_promtool_refuses_an_address_that_is_none(url: str, tmp_path: Path) -> None:
    assert render("prometheus.yml.j2", tmp_path, AMP_REMOTE_WRITE_URL=url).returncode == 0
    done = check_config(tmp_path)
    assert done.returncode == 1, done.stdout
    assert "FAILED" in done.stderr


def test_prometheus_listens_on_loopback_only(tmp_path: Path) -> None:
    assert render("slipway-prometheus.service.j2", tmp_path).returncode == 0
    listen = [word for word in (tmp_path / "out").read_text().split() if word.startswith("--web.listen-address=")]
    assert listen == ["--web.listen-address=127.0.0.1:9090"]


def test_remote_write_is_signed_in_the_clusters_region(tmp_path: Path) -> None:
    render("prometheus.yml.j2", tmp_path, AMP_REMOTE_WRITE_URL="https://x.example/w", REGION="eu-west-1")
    assert 'sigv4:\n      region: "eu-west-1"' in (tmp_path / "out").read_text()


CASES = (
    {},
    {"AMP_REMOTE_WRITE_URL": AMP, "WITH_METRICS": "yes", "STORAGE": "/var/lib/enroot", "NODE_KIND": "headnode"},
)


@pytest.mark.parametrize("case", CASES, ids=["without", "with"])
@pytest.mark.parametrize("template", sorted((ROOT / "templates").glob("*.j2")), ids=lambda path: path.stem)
def test_each_template_gives_what_jinja2_gives(template: Path, case: dict[str, str], tmp_path: Path) -> None:
    values = {**NODE_ENV, "WITH_METRICS": "no", "STORAGE": "/scratch", "PLUGIN": "/p.so", "OPTIONS": " a=1", **case}
    values |= {
        "HEALTH_INTERVAL_S": "60",
        "CLUSTER_NAME": 'quo"te \\ {{ REGION }} \u00e9',
        "AMP_REMOTE_WRITE_URL": "",
        **case,
    }
    environment = jinja2.Environment(  # noqa: S701  (makes configuration files, never HTML)
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    done = render(template.name, tmp_path, **values)
    assert (done.stdout, done.stderr) == (environment.from_string(template.read_text()).render(values), "")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("{{ REGION }} {{ region }}", 1),
        ("{{ REGION | upper }}", 1),
        ("x {% if REGION %}", 1),
        ("{% if REGION %}\n{% if REGION %}\n{% endif %}\n{% endif %}", 2),
        ('{% if REGION != "x" %}\n{% endif %}', 1),
        ("x\n{% endif %}", 2),
        ("{# remark #}", 1),
        ("{% for one in REGION %}", 1),
    ],
)
def test_what_render_does_not_know_is_refused_with_its_line(text: str, number: int, tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text(text)
    done = render(str(tmp_path / "x.j2"), tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"render.py: x.j2:{number}: '")
    assert done.stderr.endswith("Hint: correct the template\n")


def test_block_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.j2").write_text("{% if REGION %}\n")
    assert "x.j2: the last {% if %} has no {% endif %}" in render(str(tmp_path / "x.j2"), tmp_path).stderr


@pytest.mark.parametrize("template", ["prometheus.yml.j2", "amazon-cloudwatch-agent.json.j2"])
def test_missing_key_is_named(template: str, tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text("REGION=us-east-1\n")
    done = run(ROOT / "templates" / template, env)
    key = "CLUSTER_NAME" if template.startswith("prom") else "WITH_METRICS"
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{template}: {env} has no {key}. Hint: add {key}=... to /etc/slipway/site.env" in done.stderr


@pytest.mark.parametrize("line", ["lower=1", "KEY", "KEY=a\tb"])
def test_bad_line_of_node_env_is_refused(line: str, tmp_path: Path) -> None:
    env = tmp_path / "node.env"
    env.write_text(f"GOOD=1\n{line}\n")
    done = run(ROOT / "templates/pyxis.conf.j2", env)
    assert done.returncode == 2
    assert f"{env}:2: " in done.stderr


def test_missing_template_is_one_line(tmp_path: Path) -> None:
    done = render("absent.j2", tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "absent.j2" in done.stderr
