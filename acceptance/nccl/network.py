"""What NCCL and its network plugin say about the network in a log written with NCCL_DEBUG=INFO."""

from __future__ import annotations

import re

from acceptance.causes import CauseReader
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
    ("Failed to initialize sendrecv protocol", "the network plugin did not start"),
    ("aws-ofi-nccl initialization failed", "the network plugin did not start"),
)
# Flags that are void where the host's plugin chose a provider after all: it tries several.
_BEFORE_A_CHOICE = tuple(f"({mark})" for mark, meaning in _RED_FLAGS if "plugin" in meaning)
_HOST_BYTES = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._-]{0,252}):\d{1,10}:\d{1,10} \[\d{1,5}\] ")
# Messages that say something about size, network or versions; of the plugin's, all but the talkative ones.
SIZE_MESSAGE = rb"(?:comm|ncclComm\w{1,40} comm) \S{1,40} rank \d{1,7} (n[Rr]anks \d{1,7}(?: nNodes \d{1,7})?)"
OTHER_MESSAGE = (
    rb"(?:Using network|NCCL version|cudaDriverVersion|NET/(?:OFI (?!Libfabric provider associates"
    rb"|NIC group|Setting |Running on|Configuring|Skipping|Internode|Using CUDA)|Socket : Using|Plugin ?: Could not"
    rb"|(?:AWS Libfabric|IB) : GPU Direct RDMA Dis))"
)
_SAID = re.compile(rb"NCCL INFO (?:" + SIZE_MESSAGE + rb"|(" + OTHER_MESSAGE + rb"[^\n]*))")
_CHANNEL_OVER_SOCKET = re.compile(rb"via NET/Socket")
_LONGEST = 4096  # bytes of a message that are read
_LONGEST_HOST = 253  # bytes of a host's name
_MOST_SEEN = 8192  # messages remembered; a job of 1,000 hosts says about 4,000 different ones
_MOST_HOSTS = 100_000
_MOST_FLAGS = 1_000


def read_versions(line: str, versions: dict[str, str]) -> None:
    """Note the versions that `line` names; the first mention of each stays."""
    for name, pattern in _VERSIONS:
        if name not in versions:
            found = pattern.search(line)
            if found:
                versions[name] = found.group(1)


class NetworkReader:
    """Builds a Network from NCCL's log. Every rank says the same: what was read once is passed over."""

    def __init__(self, network: Network, versions: dict[str, str], causes: CauseReader) -> None:
        self._network = network
        self._versions = versions
        self._causes = causes
        self._seen: set[tuple[bytes, bytes, bytes]] = set()

    def block(self, block: bytes) -> None:
        """Note what a block of whole lines says; each line begins with its line end."""
        for found in _SAID.finditer(block):
            self._at(block, found.start(), found.group(1) or b"", found.group(2) or b"")
        for found in _CHANNEL_OVER_SOCKET.finditer(block):
            self._at(block, found.start(), b"", found.group())

    def message(self, host: bytes, size: bytes, message: bytes) -> None:
        """Note what a host said: the size of a communicator, or another message; unless it said so before."""
        said = (host, size, message)
        if said in self._seen:
            return
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen.add(said)
        if size:
            self._read_size(size.decode())
        else:
            name = host.rpartition(b">:")[2][-_LONGEST_HOST:]
            self.line((name + b":0:0 [0] NCCL INFO " + message[:_LONGEST]).decode("utf-8", "replace"))

    def line(self, text: str) -> None:
        """Note what one line says, be it information or a warning."""
        self._causes.line(text)
        found = _HOST.search(text)
        name = found.group(1) if found else "?"
        self._read_choice(text, name)
        self._read_size(text)
        read_versions(text, self._versions)
        flags = self._network.red_flags
        for mark, meaning in _RED_FLAGS:
            flag = f"{name}: {meaning} ({mark})"
            if mark in text and flag not in flags and len(flags) < _MOST_FLAGS:
                flags.append(flag)

    def end(self) -> set[str]:
        """Take back the red flags that a later choice made void; return the hosts whose plugin chose a provider."""
        chosen = {name for name, host in self._network.hosts.items() if host.provider}
        flags = self._network.red_flags
        flags[:] = [one for one in flags if not (one.endswith(_BEFORE_A_CHOICE) and one.partition(": ")[0] in chosen)]
        return chosen

    def _at(self, block: bytes, position: int, size: bytes, message: bytes) -> None:
        host = _HOST_BYTES.search(block, block.rfind(b"\n", 0, position), position)
        self.message(host.group(1) if host else b"", size, message)

    def _read_size(self, message: str) -> None:
        comm = _COMM.search(message)
        if comm:
            network = self._network
            network.ranks = max(network.ranks or 0, int(comm.group(1)))
            if comm.group(2):
                network.nodes = max(network.nodes or 0, int(comm.group(2)))

    def _read_choice(self, text: str, name: str) -> None:
        provider = _PROVIDER.search(text)
        chosen = _NETWORK.search(text) or _VIA.search(text)
        protocol = _PROTOCOL.search(text)
        hosts = self._network.hosts
        if not (provider or chosen or protocol) or (name not in hosts and len(hosts) >= _MOST_HOSTS):
            return
        host = hosts.setdefault(name, HostNetwork())
        if provider:
            host.provider, host.fabric = provider.group(1), provider.group(2)
            if provider.group(3):
                nics = int(provider.group(3))
                host.nics = nics if host.nics is None else min(nics, host.nics)
        if chosen and host.network != "Socket":
            host.network = chosen.group(1).strip()
        if protocol:
            host.protocol = protocol.group(1)
