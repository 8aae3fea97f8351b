"""A real Kubernetes node on this machine: control plane, kubelet, containerd, DNS, services, volumes and policies.

Needs root on Linux with the packages of `PACKAGES`; the rest is built (`binaries`). Everything lies in one folder and
one network namespace, both named after the clone of the project, so nodes of two clones don't meet. `down` removes all
but the images.
"""

import os
import shutil
import sys
import zlib
from pathlib import Path

from cluster.binaries import HERE, NoCluster, missing
from cluster.machine import Commands, Machine
from cluster.parts import cgroups, configuration
from cluster.parts.configuration import API_PORT, CNI_PLUGINS, METRICS_SERVICE
from cluster.parts.control_plane import Keys, api_server_command, etcd_command
from cluster.parts.daemons import wait_for
from cluster.second import SecondNode

# Program -> Debian package that has it.
PACKAGES = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "ip": "iproute2",
    "conntrack": "conntrack",
    "socat": "socat",  # what containerd's port-forward runs
    "openssl": "openssl",
}


def missing_packages() -> list[str]:
    """Debian packages that the node needs and this machine lacks."""
    packages = {package for program, package in PACKAGES.items() if not shutil.which(program)}
    if not (CNI_PLUGINS / "bridge").exists():
        packages.add("containernetworking-plugins")
    return sorted(packages)


def check_machine() -> None:
    """Raise `NoCluster` where a node can't run, no matter what is built or installed."""
    if not sys.platform.startswith("linux"):
        raise NoCluster("a Kubernetes node runs on Linux only; set KUBECONFIG to test on another cluster")
    if os.geteuid() != 0:
        raise NoCluster("a Kubernetes node needs root; set KUBECONFIG to test on another cluster")
    if not Path("/proc/sys/net/bridge").exists():
        raise NoCluster("a bridge of pods needs br_netfilter of the kernel: run `modprobe br_netfilter`")


class Node(Machine):
    """The node of a clone, this one. `kubeconfig` is an administrator's, and works from the machine itself."""

    def __init__(self, clone: Path = HERE) -> None:
        super().__init__(f"tussock-{zlib.crc32(bytes(clone)):08x}", 0)
        self.audit_log = self.folder / "audit.log"
        self.second = SecondNode(self)

    def named(self, node_name: str) -> Machine:
        """The node of this name, this one or the second."""
        return self.second if node_name == self.second.node_name else self

    def up(self) -> None:
        """Start the node and wait until it is Ready; a node that runs is left as it is.

        What an interrupted run left is removed first, but images. Raises `NoCluster`, or `RuntimeError` with the end
        of the log of what did not start.
        """
        check_machine()
        if lacking := missing_packages():
            raise NoCluster(f"missing packages: {' '.join(lacking)}")
        if absent := missing():
            raise NoCluster(f"not built: {', '.join(absent)}")
        if self.is_up():
            return
        self.down()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.network.up()
        self.network.open_to_machine()
        cgroups.make(self.name)
        configuration.write_cluster(self.folder, self.network)
        configuration.write_node(self.folder, Keys.within(self.folder), "127.0.0.1", self.network)
        for name in ("etcd", "containerd", "kube-apiserver"):
            self.start(name)
        wait_for("API server", self.api_is_ready, self.daemon("etcd"), self.daemon("kube-apiserver"))
        self.start_containers()
        for name in self.commands():
            self.start(name)
        wait_for("objects of kube-system", lambda: self.kubectl("apply", "-f", str(HERE / "objects.yaml")))
        self.wait_until_ready()
        # The last thing that a pod needs, and a sign that controllers work.
        account = ("get", "serviceaccount", "default")
        wait_for("service account", lambda: self.kubectl(*account), self.daemon("kube-controller-manager"))

    def down(self) -> None:
        """Stop everything and remove all state but images, of the second node, too."""
        self.second.down()
        super().down()

    def commands(self) -> Commands:
        """The control plane, what each node has, and the rest of a cluster."""
        folder, keys = self.folder, Keys.within(self.folder)
        inside = f"--kubeconfig={folder / 'inside.kubeconfig'}"
        return {
            "etcd": etcd_command(folder, 2379, 2380),
            "kube-apiserver": [
                *api_server_command(folder, 2379, API_PORT),
                f"--advertise-address={self.network.node_address}",
                f"--kubelet-client-certificate={keys.admin.certificate}",
                f"--kubelet-client-key={keys.admin.key}",
                # By name it could not be found: the node's name means nothing to the machine.
                "--kubelet-preferred-address-types=InternalIP",
            ],
            "kube-controller-manager": [
                inside,
                f"--root-ca-file={keys.authority}",
                f"--service-account-private-key-file={keys.service_accounts.key}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                # An autoscaler is looked at as often; the default is 15 s.
                "--horizontal-pod-autoscaler-sync-period=2s",
            ],
            "kube-scheduler": [
                inside,
                "--leader-elect=false",
                # In 1.34 that plugin fails on a pod whose claim isn't bound yet, which is then left alone for minutes.
                "--feature-gates=DynamicResourceAllocation=false",
            ],
            **super().commands(),
            "coredns": [f"-conf={folder / 'Corefile'}"],
            "cluster.parts.volumes": self.part("volumes", folder / "inside.kubeconfig", folder / "volumes"),
        }

    def commands_on_demand(self) -> Commands:
        """What serves the metrics of an autoscaler."""
        pki = self.folder / "pki"
        pair = pki / f"{METRICS_SERVICE}.pem", pki / f"{METRICS_SERVICE}.key"
        return {
            "cluster.parts.external_metrics": self.part(
                "external_metrics", self.folder / "inside.kubeconfig", self.network.node_address, *pair
            )
        }
