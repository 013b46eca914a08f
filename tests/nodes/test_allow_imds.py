"""headnode/allow-imds.sh against real iptables, in a network of its own, with the chain that ParallelCluster makes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "headnode/allow-imds.sh"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(shutil.which("iptables", path=PATH) is None, reason="needs iptables"),
]

# A metadata service on loopback's own copy of its address; `ask` says what the account nobody gets from it.
PRELUDE = """
set -euo pipefail
ip link set lo up
ip address add 169.254.169.254/32 dev lo
/usr/bin/python3 -m http.server --bind 169.254.169.254 80 >/dev/null 2>&1 &
trap 'kill $!' EXIT
ask() { setpriv --reuid=nobody --clear-groups curl --silent --output /dev/null --max-time 6 http://169.254.169.254/ && echo open || echo shut; }
for _ in $(seq 300); do curl --silent --output /dev/null http://169.254.169.254/ && break; sleep 0.1; done
"""
LOCK = """
iptables --new-chain PARALLELCLUSTER_IMDS
iptables --append OUTPUT --destination 169.254.169.254/32 --jump PARALLELCLUSTER_IMDS
iptables --append PARALLELCLUSTER_IMDS --match owner --uid-owner root --jump ACCEPT
iptables --append PARALLELCLUSTER_IMDS --jump REJECT
"""


def run(script: str) -> list[str]:
    command = ["unshare", "--net", "bash", "-c", PRELUDE + script, "bash", str(SCRIPT)]
    clean = {"PATH": PATH, "BASH_ENV": os.environ.get("BASH_ENV", "")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_account_gets_through_and_twice_is_once() -> None:
    told = run(LOCK + 'ask; bash "$1" nobody; ask; bash "$1" nobody; iptables -S PARALLELCLUSTER_IMDS | grep -c ACCEPT')
    assert told == ["shut", "open", "2"]  # root's rule and ours


# What ParallelCluster's restore_tables.sh does at boot: iptables-restore removes every rule that was not saved.
SAVE, RESTORE = "saved=$(iptables-save);", 'iptables-restore <<<"$saved";'


def test_rule_that_a_reboot_lost_is_missed_by_the_check_and_added_again() -> None:
    check = 'bash "$1" --check nobody && echo there || echo lost;'
    told = run(f'{LOCK} {SAVE} bash "$1" nobody; {check} {RESTORE} {check} ask; bash "$1" nobody; {check} ask')
    assert told == ["there", "lost", "shut", "there", "open"]


def test_without_the_chain_nothing_is_changed() -> None:
    assert run('bash "$1" nobody; iptables -S | grep -c -- -A || true; ask') == ["0", "open"]


def test_an_unknown_account_is_a_failure() -> None:
    assert run(LOCK + 'bash "$1" no-such-account 2>/dev/null && echo good || echo refused') == ["refused"]
