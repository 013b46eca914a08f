"""What the tests of the cost share: settings to price, ways for AWS to fail, and the examples' sums.

EXAMPLES holds USD a month by part, (always, at most), reckoned by hand: quantity times price, as the data file has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Handler = Callable[[dict[str, Any], Callable[..., Any]], "Iterable[bytes] | None"]

BASE = """
name: demo
region: us-east-1
zone: us-east-1a
queues:
{queues}
storage:
  fsx: {{capacity_gib: 2400, throughput_mb_s_per_tib: 250}}
observability: {{prometheus: false, alert_email: team@example.com}}
acceptance: {{scenario: none}}
{more}
"""


def write(folder: Path, queues: str, more: str = "", **edit: str) -> Path:
    text = BASE.format(queues=queues, more=more)
    for old, new in edit.items():
        assert old in text
        text = text.replace(old, new)
    file = folder / "demo.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def json_error(code: str, message: str = "no", status: str = "400 Bad Request") -> Handler:
    """Every request to the Price List API fails like this."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        if "AWSPriceListService" not in environ.get("HTTP_X_AMZ_TARGET", ""):
            return None
        text = f'{{"__type": "{code}", "message": "{message}"}}'.encode()
        start_response(status, [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(text)))])
        return [text]

    return answer


H = 730
SAMPLES = H * 3600 / 15  # of one series a month

# Series: 481 + 13 a vCPU + 5 a node, 23 an EFA device; with GPUs 19 a GPU + 5; the head node's Prometheus 293 + 5.
P5 = 481 + 13 * 192 + 5 + 23 * 32 + 19 * 8 + 5
P5EN = 481 + 13 * 192 + 5 + 23 * 16 + 19 * 8 + 5
P6 = 481 + 13 * 192 + 5 + 23 * 8 + 19 * 8 + 5
G6 = 481 + 13 * 4 + 5 + 19 + 5
C6I = 481 + 13 * 32 + 5
HEAD_8XL = 481 + 13 * 32 + 5 + 293 + 5
HEAD_2XL = 481 + 13 * 8 + 5 + 293 + 5


def metrics(series: int) -> float:
    """40 million samples free, 0.90 USD per 10 million up to 2 billion, 0.35 beyond."""
    samples = series * SAMPLES
    return (min(samples, 2e9) - 40e6) / 10e6 * 0.9 + max(samples - 2e9, 0) / 10e6 * 0.35


def same(usd: float) -> tuple[float, float]:
    return usd, usd


def block(number: int = 1, count: int = 4) -> str:
    """A queue of p5.48xlarge in a capacity block, as lines of a settings file."""
    reservation = f"{{kind: capacity-block, id: cr-0123456789abcdef{number}}}"
    start = f"  - {{name: train{number}, instance_type: p5.48xlarge, count: {count}, efa: true"
    return f"{start}, reservation: {reservation}}}\n"


CPU = "  - {name: cpu, instance_type: c6i.8xlarge, count: 1}\n"

NETWORK = {"NAT gateway": same(H * 0.045), "public IPv4 addresses": same(2 * H * 0.005)}

EXAMPLES = {
    "existing-vpc.yaml": {
        "on-demand reservation cr-0123456789abcdef4": same(2 * H * 58.8928),
        "head node": same(H * 32 * 0.051),
        "EBS root volume of the head node": same(200 * 0.0836),
        "EBS root volumes of the compute nodes": same(2 * 200 * 0.0836),
        "FSx for Lustre": same(4800 * 0.218),
        "Amazon Managed Prometheus": same(metrics(HEAD_8XL + 2 * P5)),
    },
    "g6-sandbox.yaml": {
        "queue try": (2 * H * 0.8048, 4 * H * 0.8048),
        "head node": same(H * 0.384),
        "EBS root volume of the head node": same(200 * 0.08),
        "EBS root volumes of the compute nodes": (2 * 200 * 0.08, 4 * 200 * 0.08),
        "FSx for Lustre": same(1200 * 0.14),
        **NETWORK,
        "Amazon Managed Prometheus": (metrics(HEAD_2XL + 2 * G6), metrics(HEAD_2XL + 4 * G6)),
    },
    "p5-capacity-block.yaml": {
        "capacity block cr-0123456789abcdef1": same(4 * H * 31.464),
        "head node": same(H * 1.536),
        "EBS root volume of the head node": same(200 * 0.08),
        "EBS root volumes of the compute nodes": same(4 * 200 * 0.08),
        "EBS /home": same(500 * 0.08),
        "FSx for Lustre": same(4800 * 0.21),
        **NETWORK,
        "Amazon Managed Prometheus": same(metrics(HEAD_8XL + 4 * P5)),
        "Amazon Managed Grafana": same(9.0),
    },
    "p5-reservation.yaml": {
        "queue cpu": (0.0, 8 * H * 1.36),
        "on-demand reservation cr-0123456789abcdef0": same(16 * H * 55.04),
        "head node": same(H * 1.536),
        "EBS root volume of the head node": same(200 * 0.08),
        "EBS root volumes of the compute nodes": (16 * 200 * 0.08, 24 * 200 * 0.08),
        "FSx for Lustre": same(19200 * 0.34),
        **NETWORK,
        "Amazon Managed Prometheus": (metrics(HEAD_8XL + 16 * P5), metrics(HEAD_8XL + 16 * P5 + 8 * C6I)),
    },
    "p5en.yaml": {
        "capacity block cr-0123456789abcdef2": same(4 * H * 41.612),
        "head node": same(H * 1.536),
        "EBS root volume of the head node": same(200 * 0.08),
        "EBS root volumes of the compute nodes": same(4 * 200 * 0.08),
        "FSx for Lustre": same(2400 * 0.21),
        **NETWORK,
        "Amazon Managed Prometheus": same(metrics(HEAD_8XL + 4 * P5EN)),
    },
    "p6-b200.yaml": {
        "capacity block cr-0123456789abcdef3": same(4 * H * 74.88),
        "head node": same(H * 1.536),
        "EBS root volume of the head node": same(200 * 0.08),
        "EBS root volumes of the compute nodes": same(4 * 200 * 0.08),
        "FSx for Lustre": same(9600 * 0.34),
        **NETWORK,
        "Amazon Managed Prometheus": same(metrics(HEAD_8XL + 4 * P6)),
    },
    "rehearsal.yaml": {
        "capacity block cr-0123456789abcdef1": same(4 * H * 31.464),
        "head node": same(H * 0.384),
        "EBS root volume of the head node": same(200 * 0.08),
        "EBS root volumes of the compute nodes": same(4 * 200 * 0.08),
        "FSx for Lustre": same(1200 * 0.145),
        **NETWORK,
        "Amazon Managed Prometheus": same(metrics(HEAD_2XL + 4 * P5)),
        "Amazon Managed Grafana": same(9.0),
    },
}
