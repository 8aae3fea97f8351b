"""The network of the node: a namespace without a way out, which the machine reaches over one pair of interfaces.

Pods, services and the node's ports live inside, so nothing of the machine is in their way, and nothing that a test
sends can leave it. A pair of interfaces with a network of two addresses leads in: that is how kubectl and the tests
reach the API server, as they would a cluster elsewhere. Pods are reached by `kubectl exec` and `port-forward` only.
"""

import subprocess
import zlib
from pathlib import Path
from typing import NamedTuple

POD_RANGE = "10.244.0.0/24"
NODE_ADDRESS = "10.244.0.1"
BRIDGE = "cni0"


class Network(NamedTuple):
    """Names and addresses of a node's network; `name` keeps the nodes of two clones apart."""

    name: str

    @property
    def path(self) -> Path:
        """What `nsenter --net=` enters: unlike `ip netns exec` it leaves /sys, and so the cgroups, as they are."""
        return Path("/run/netns") / self.name

    @property
    def address(self) -> str:
        """The node as the machine sees it: one of the /30 blocks of 198.18.0.0/16, which is reserved for tests."""
        return self._address(2)

    def _address(self, host: int) -> str:
        number = zlib.crc32(self.name.encode()) % 2**14 * 4 + host
        return f"198.18.{number // 256}.{number % 256}"

    def is_up(self) -> bool:
        """Whether the namespace is there."""
        return self.path.exists()

    def up(self) -> None:
        """Make what is missing of the namespace, the bridge for pods and the pair of interfaces."""
        if self.is_up():
            return
        outer, inner = f"tk{zlib.crc32(self.name.encode()):08x}", "machine"
        _ip("netns", "add", self.name)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.name)
        _ip("addr", "add", f"{self._address(1)}/30", "dev", outer)
        _ip("link", "set", outer, "up")
        for command in (
            f"link set lo up\naddr add {self.address}/30 dev {inner}\nlink set {inner} up",
            # The bridge exists before the first pod, because its address is the node's.
            f"link add {BRIDGE} type bridge\naddr add {NODE_ADDRESS}/24 dev {BRIDGE}\nlink set {BRIDGE} up",
            # Without a default route the kernel refuses ClusterIPs before kube-proxy's rules see them.
            f"route add 10.96.0.0/16 dev {BRIDGE}",
        ):
            for line in command.splitlines():
                _ip("-n", self.name, *line.split())
        # Without the second, packets from pod to pod pass the bridge unseen by the rules of services and policies.
        settings = ("net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")
        subprocess.run(self.inside("sysctl", "-qw", *settings), check=True)

    def down(self) -> None:
        """Remove the namespace, and with it all interfaces."""
        if self.is_up():
            _ip("netns", "del", self.name)

    def inside(self, *command: str) -> list[str]:
        """The command, changed to run inside the network."""
        return ["nsenter", f"--net={self.path}", *command]


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)
