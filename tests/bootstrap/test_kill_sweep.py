"""The head node's setup, killed at many moments: nothing is ever half there, and a run to the end repairs all."""

from __future__ import annotations

import pytest

from .host import Host

pytestmark = [pytest.mark.hosts, pytest.mark.slow]
HEAD = "/srv/fetch-bundle.sh head s3://assets/bundle.gz $(cat /srv/sha256) RESULTS_BUCKET=results-1"
QUIET = "systemctl stop slipway-slurm-targets.timer slipway-slurm-targets.service slipway-containers.service || true"
# A killed run is ended with everything it started: a unit's processes are one control group.
SWEEP = """
whole() {
  while read -r file; do bash -n "$file" || return 1; done < <(find /fsx /usr/local/bin/acceptance -name '*.sh' -type f 2>/dev/null)
  [ ! -e /etc/prometheus/prometheus.yml ] || /usr/bin/promtool check config /etc/prometheus/prometheus.yml >/dev/null || return 1
  [ ! -e /etc/slipway/node.env ] || grep -qx STEP_TIMEOUT_S=300 /etc/slipway/node.env || return 1
  for program in prometheus/current/prometheus node_exporter/current/node_exporter; do
    [ ! -e /opt/slipway/software/$program ] || /opt/slipway/software/$program --version >/dev/null 2>&1 || return 1
  done
}
round=0
while :; do
  round=$((round + 1))
  systemd-run --quiet --collect --unit=sweep-$round bash -c 'HEAD && touch /srv/finished'
  sleep $(printf '%d.%02d' $((round * 25 / 100)) $((round * 25 % 100)))
  systemctl kill --signal=KILL sweep-$round 2>/dev/null || true
  for wait in $(seq 50); do systemctl is-active --quiet sweep-$round || break; sleep 0.1; done
  whole || { echo "broken in round $round"; exit 1; }
  [ ! -e /srv/finished ] || break
  [ $round -lt 60 ] || { echo 'never finished'; exit 1; }
done
echo "rounds $round"
"""


def content(host: Host) -> dict[str, str]:
    """Return the snapshot without times and without what a run writes for itself."""
    found = host.snapshot("/fsx/logs", "/etc/prometheus/targets", "/var/cache/slipway")
    return {path: " ".join(word for word in facts.split() if "." not in word) for path, facts in found.items()}


def test_kill_at_many_moments_then_run_to_the_end(node: Host) -> None:
    node.run(f"{HEAD}; {QUIET}")
    expected = content(node)
    wipe = "systemctl stop 'slipway-*'; rm -rf /opt/slipway /etc/slipway /etc/prometheus /fsx/* /var/lib/slipway "
    wipe += "/etc/systemd/system/slipway-* /etc/systemd/system/*.wants/slipway-* /usr/local/bin/acceptance "
    node.run(f"{wipe} /usr/local/libexec /var/lib/prometheus/slipway /var/cache/slipway; systemctl daemon-reload")
    out = node.run(SWEEP.replace("HEAD", HEAD) + QUIET, timeout=400).stdout
    assert int(out.split("rounds ")[1].split()[0]) > 4
    found = content(node)
    assert {path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path)} == set()
    assert node.run("curl -sf http://127.0.0.1:9090/-/ready").stdout.startswith("Prometheus")
