"""Ports for the servers of tests that have to be given a number before they listen."""

from __future__ import annotations

import os
import socket

_PORTS = 100
"""How many ports are reserved at once."""
_RESERVED: list[socket.socket] = []


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that are free, below the range for outgoing connections.

    They are reserved for this process, by a name that each process of the tests asks the kernel for, and that goes with
    the process: between the choice and the first listener another process may choose too.
    """
    blocks = [*range(20000, 32000, _PORTS)]
    start = os.getpid() % len(blocks)
    for first in (*blocks[start:], *blocks[:start]):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0slipway-tests-ports-{first}")
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _RESERVED.append(reservation)
        return first
    raise AssertionError("no free ports")
