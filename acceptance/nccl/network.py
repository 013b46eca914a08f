"""What NCCL and its network plugin say about the network in a log written with NCCL_DEBUG=INFO."""

from __future__ import annotations

import re

from acceptance.nccl.model import HostNetwork, Network

_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,252}):\d{1,10}:\d{1,10} \[\d{1,5}\] ")
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is ([\w;.-]{1,64})(?:, fabric is ([\w;.-]{1,64}))?(?: \(found (\d{1,6}) nics\))?"
)
_NETWORK = re.compile(r"NCCL INFO Using network ([\w ./-]{1,64})")
_PROTOCOL = re.compile(r"Using transport protocol (\w{1,32})")
_VIA = re.compile(r"via NET/(Socket)")
_COMM = re.compile(r"n[Rr]anks (\d{1,7})(?: nNodes (\d{1,7}))?")
_VERSIONS = (
    ("nccl", re.compile(r"NCCL version (\d[\w.+-]{0,40})")),
    ("ofi_plugin", re.compile(r"NET/OFI Initializing aws-ofi-nccl (?:git-)?([\w.+-]{1,40})")),
    ("libfabric", re.compile(r"NET/OFI Using Libfabric version (\d[\w.+-]{0,40})")),
    ("cuda_driver", re.compile(r"cudaDriverVersion (\d{1,8})")),
    ("nccl_tests", re.compile(r"nccl-tests version (\d[\w.+-]{0,40})")),
)
_RED_FLAGS = (
    ("NET/Socket : Using", "NCCL opened its socket transport"),
    ("via NET/Socket", "channels run over sockets"),
    ("Using network Socket", "NCCL chose sockets"),
    ("No eligible providers", "the network plugin found no usable provider"),
)


def is_dull(line: bytes) -> bool:
    """Whether `line` is one of NCCL's debug lines that hold neither a row's piece nor anything read here.

    Written as plain searches because a debug log has millions of such lines: each is several times faster than a regex.
    """
    return (
        b"NCCL INFO" in line
        and b"  " not in line
        and b"anks " not in line
        and b"ersion" not in line
        and b"Selected" not in line
        and b"eligible" not in line
        and b"NET/Socket" not in line
        and b"Using network" not in line
        and b"transport protocol" not in line
        and b"Initializing aws" not in line
        and b"Test " not in line
        and b"error" not in line
    )


def read_versions(line: str, versions: dict[str, str]) -> None:
    """Note the versions that `line` names; the first mention of each stays."""
    for name, pattern in _VERSIONS:
        if name not in versions:
            found = pattern.search(line)
            if found:
                versions[name] = found.group(1)


def read_network(line: str, network: Network) -> None:
    """Note what `line`, a line of NCCL's log, says about the network."""
    found = _HOST.search(line)
    name = found.group(1) if found else "?"
    _read_choice(line, name, network)
    comm = _COMM.search(line)
    if comm:
        network.ranks = max(network.ranks or 0, int(comm.group(1)))
        if comm.group(2):
            network.nodes = max(network.nodes or 0, int(comm.group(2)))
    for mark, meaning in _RED_FLAGS:
        flag = f"{name}: {meaning} ({mark})"
        if mark in line and flag not in network.red_flags and len(network.red_flags) < 1000:
            network.red_flags.append(flag)


def _read_choice(line: str, name: str, network: Network) -> None:
    provider = _PROVIDER.search(line)
    chosen = _NETWORK.search(line) or _VIA.search(line)
    protocol = _PROTOCOL.search(line)
    if not (provider or chosen or protocol) or (name not in network.hosts and len(network.hosts) >= 100_000):
        return
    host = network.hosts.setdefault(name, HostNetwork())
    if provider:
        host.provider, host.fabric = provider.group(1), provider.group(2)
        if provider.group(3):
            nics = int(provider.group(3))
            host.nics = nics if host.nics is None else min(nics, host.nics)
    if chosen and host.network != "Socket":
        host.network = chosen.group(1).strip()
    if protocol:
        host.protocol = protocol.group(1)
