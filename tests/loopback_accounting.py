"""A loopback Slurm with accounting, for tests: slurmdbd before a MariaDB of its own, ended with it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.loopback_slurm import LoopbackSlurm, loopback_slurm
from tests.ports import free_ports

_DATABASE = ("mariadbd", "mariadb-install-db", "mariadb", "mariadb-admin", "slurmdbd")


class _Accounting:
    """A MariaDB that listens on a socket and a port of loopback, and slurmdbd before it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._database: subprocess.Popen[bytes] | None = None

    def start(self, cluster: LoopbackSlurm) -> None:
        root, data = cluster.root, cluster.root / "mariadb"
        install = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"]
        subprocess.run(
            [*install, "--auth-root-authentication-method=normal"], check=True, capture_output=True, timeout=180
        )
        socket = ["--no-defaults", f"--socket={root}/mysql.sock"]
        with (root / "log/mariadb.log").open("wb") as log:
            self._database = subprocess.Popen(
                [
                    *("mariadbd", *socket, "--user=root", f"--datadir={data}", "--bind-address=127.0.0.1"),
                    *(f"--port={self.port}", f"--pid-file={root}/mariadb.pid", "--innodb-buffer-pool-size=64M"),
                    *("--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"),
                ],
                stdout=log,
                stderr=log,
            )
        ping = ["mariadb-admin", *socket, "ping"]
        _until(lambda: subprocess.run(ping, capture_output=True, timeout=60, check=False).returncode == 0)
        statement = (
            "create database slurm_acct_db; create user slurm@127.0.0.1 identified by 'test';"
            " grant all on slurm_acct_db.* to slurm@127.0.0.1"
        )
        subprocess.run(["mariadb", *socket, "-e", statement], check=True, timeout=60)
        conf = root / "etc/slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={root}/munge/socket\nDbdHost=localhost\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self.port + 1}\nSlurmUser=root\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={self.port}\nStorageUser=slurm\nStoragePass=test\nStorageLoc=slurm_acct_db\n"
            f"LogFile={root}/log/slurmdbd.log\nPidFile={root}/run/slurmdbd.pid\n"
        )
        conf.chmod(0o600)
        subprocess.run(["slurmdbd"], check=True, timeout=30, env={**os.environ, "SLURM_CONF": str(conf)})
        _until(lambda: "listening" in (root / "log/slurmdbd.log").read_text() or _answers(self.port + 1))

    def stop(self) -> None:
        if self._database is not None:
            self._database.terminate()
            self._database.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(true: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


@contextmanager
def accounted_slurm(nodes: int, more: str = "") -> Iterator[LoopbackSlurm]:
    """A running Slurm whose slurmctld forgets a job 2 s after its end, so that sacct has to be asked.

    Needs Debian's packages slurmdbd and mariadb-server as well. more: as for `loopback_slurm`.
    """
    missing = [name for name in _DATABASE if shutil.which(name) is None]
    if missing:
        pytest.skip(f"needs MariaDB and slurmdbd (missing: {', '.join(missing)})")
    accounting = _Accounting(free_ports(2))
    lines = (
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
        "AccountingStoragePass=ROOT/munge/socket\n"
        f"AccountingStoragePort={accounting.port + 1}\nMinJobAge=2\n{more}"
    )
    try:
        with loopback_slurm(nodes, lines, accounting.start) as slurm:
            yield slurm
    finally:
        accounting.stop()
