"""The hosts' network: a bridge in the engine's network namespace, one namespace and one cable a host, no way out."""

from __future__ import annotations

import contextlib
import itertools
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from rehearsal.hosts.commands import run
from rehearsal.hosts.errors import HostsError

BRIDGE = "br-hosts"
METADATA_ADDRESS = "169.254.169.254"  # of EC2's instance metadata service
NAMESPACES = Path("/run/netns")
# A bridge without an address of its own takes one of its ports': it would change as hosts come and go, and the others'
# connections to the engine would hang for a minute.
_BRIDGE_MAC = "02:00:00:00:00:01"
# The bucket lets this much through at once: above one 64 KiB segment of the kernel, small against the sizes measured.
_BURST_BYTES = 128 * 1024
_QUEUE_MS = 100


class Network:
    """The bridge and the cables. Addresses are IPv4; rates are Mbit/s in each direction."""

    def __init__(self, cidr: str, gateway_ip: str) -> None:
        self._net = IPv4Network(cidr)
        self.gateway_ip = str(IPv4Address(gateway_ip))
        if IPv4Address(gateway_ip) not in self._net:
            raise ValueError(f"gateway {gateway_ip} is not in the network {cidr}")
        self._ports: dict[str, str] = {}
        self._numbers = itertools.count()

    def start(self) -> None:
        """Make the bridge and give the engine its address on it."""
        NAMESPACES.mkdir(parents=True, exist_ok=True)
        _batch(
            [
                "link set lo up",
                f"link add {BRIDGE} address {_BRIDGE_MAC} type bridge",
                f"addr add {self.gateway_ip}/{self._net.prefixlen} dev {BRIDGE}",
                f"addr add {METADATA_ADDRESS}/32 dev {BRIDGE}",
                f"link set {BRIDGE} up",
            ]
        )

    def plug(self, name: str, ip: str) -> None:
        """Make the host's network namespace and its cable; only the metadata service is reached outside the network."""
        if IPv4Address(ip) not in self._net:
            raise ValueError(f"{name}: address {ip} is not in the network {self._net}")
        port = f"port{next(self._numbers)}"
        self._ports[name] = port
        _batch(
            [
                f"netns add {name}",
                f"link add {port} type veth peer name eth0 netns {name}",
                f"link set {port} master {BRIDGE} up",
            ]
        )
        _batch(
            [
                "link set lo up",
                f"addr add {ip}/{self._net.prefixlen} brd + dev eth0",
                "link set eth0 up",
                f"route add {METADATA_ADDRESS}/32 dev eth0",
            ],
            namespace=name,
        )

    def unplug(self, name: str) -> None:
        """Remove one host's cable and namespace; the host must have ended. What is not there is no fault."""
        port = self._ports.pop(name, "")
        if port:
            with contextlib.suppress(HostsError):
                run(["ip", "-force", "-batch", "-"], stdin=f"link del {port}\nnetns del {name}\n")

    def shape(self, name: str, rate_mbit: float | None) -> None:
        """Bound the host's link to rate_mbit in each direction; None takes the bound away."""
        for where, device in ((["-n", name], "eth0"), ([], self._ports[name])):
            if rate_mbit is None:
                run(["tc", *where, "qdisc", "replace", "dev", device, "root", "noqueue"])
                continue
            rate = f"{round(rate_mbit * 1_000_000)}bit"
            bucket = ["rate", rate, "burst", str(_BURST_BYTES), "latency", f"{_QUEUE_MS}ms"]
            run(["tc", *where, "qdisc", "replace", "dev", device, "root", "tbf", *bucket])

    def stop(self) -> None:
        """Remove cables, namespaces and the bridge; the hosts must have ended. What is not there is no fault."""
        lines = [line for name, port in self._ports.items() for line in (f"link del {port}", f"netns del {name}")]
        self._ports.clear()
        with contextlib.suppress(HostsError):
            run(["ip", "-force", "-batch", "-"], stdin="\n".join([*lines, f"link del {BRIDGE}"]) + "\n")


def _batch(lines: list[str], namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], stdin="\n".join(lines) + "\n")
