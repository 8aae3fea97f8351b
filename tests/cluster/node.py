"""One real Kubernetes node on this machine: control plane, kubelet, containerd, DNS, services, volumes and policies.

Needs root on Linux with the packages of `PACKAGES`; the rest is built (`binaries`). Everything lies in one folder and
one network namespace, both named after the clone of the project, so nodes of two clones don't meet. `down` removes all
but the images.
"""

import os
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

from cluster import images
from cluster.binaries import HERE, PROGRAMS, NoCluster, missing
from cluster.parts import cgroups, configuration
from cluster.parts.configuration import API_PORT, CNI_PLUGINS, NODE_NAME, PAUSE_IMAGE
from cluster.parts.control_plane import Keys, api_server_command, etcd_command
from cluster.parts.daemons import Daemon, end_all, wait_for
from cluster.parts.network import NODE_ADDRESS, POD_RANGE, Network, namespaces_of, remove_namespace

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


class Node:
    """The node of a clone, this one. `kubeconfig` is an administrator's, and works from the machine itself."""

    def __init__(self, clone: Path = HERE) -> None:
        self.name = f"tussock-{zlib.crc32(bytes(clone)):08x}"
        self.folder = Path("/var/tmp") / self.name
        self.network = Network(self.name)
        self.kubeconfig = self.folder / "kubeconfig"
        self.audit_log = self.folder / "audit.log"

    def daemon(self, name: str) -> Daemon:
        """One of the node's processes: `kubelet`, `kube-apiserver`..."""
        return Daemon(name, self.folder)

    def is_up(self) -> bool:
        """Whether all processes run."""
        return self.network.is_up() and all(self.daemon(name).pid for name in self._commands())

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
        cgroups.make(self.name)
        configuration.write_all(self.folder, self.network.address, self.name)
        for name in ("etcd", "containerd", "kube-apiserver"):
            self.start(name)
        wait_for("API server", self.api_is_ready, self.daemon("etcd"), self.daemon("kube-apiserver"))
        wait_for("containerd", lambda: _succeeds(*self.ctr("version")), self.daemon("containerd"))
        self._import_pause()
        for name in self._commands():
            self.start(name)
        wait_for("objects of kube-system", lambda: self._kubectl("apply", "-f", str(HERE / "objects.yaml")))
        ready = ("wait", "--for=condition=Ready", f"node/{NODE_NAME}", "--timeout=1s")
        wait_for("ready node", lambda: self._kubectl(*ready), self.daemon("kubelet"))
        # The last thing that a pod needs, and a sign that controllers work.
        account = ("get", "serviceaccount", "default")
        wait_for("service account", lambda: self._kubectl(*account), self.daemon("kube-controller-manager"))

    def down(self) -> None:
        """Stop everything, pods first, and remove all state but images.

        Of a run that was killed, too: its pods and their shims live on without a kubelet and a containerd.
        """
        self.daemon("kubelet").stop()  # or it would start its pods again
        spaces = namespaces_of(cgroups.processes(self.name)) - {self.name}
        if self.daemon("containerd").pid:
            self._remove_containers()
        for name in reversed(self._commands()):
            self.daemon(name).stop(signal.SIGKILL if name in ("etcd", "kube-apiserver") else signal.SIGTERM)
        cgroups.end(self.name)
        end_all(f"network {self.name}", self.network.processes)
        self._unmount()
        for space in spaces:
            remove_namespace(space)
        self.network.down()
        cgroups.remove(self.name)
        for left in self.folder.iterdir() if self.folder.exists() else ():
            if left.is_dir() and left.name != "containerd":
                shutil.rmtree(left)
            elif left.is_file():
                left.unlink()

    def start(self, name: str) -> None:
        """Start one of the node's processes, also again after a test has stopped it."""
        self.daemon(name).start(self._commands()[name])

    def load(self, image: str, name: str) -> None:
        """Give the node an image by the id that `images.build` answered, unless it has it under this name already."""
        stamp = self.folder / "containerd" / "loaded" / name.replace("/", "_")
        if not stamp.exists() or stamp.read_text() != image:
            images.load(image, name, self.ctr, self.folder / "containerd" / "layout")
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(image)

    def tag(self, name: str, another: str) -> None:
        """Give an image that the node has another name, too, which makes it another image to Kubernetes."""
        subprocess.run(self.ctr("images", "tag", "--force", name, another), check=True, capture_output=True)

    def kill(self, container: str) -> None:
        """End all processes of a container, by its id, with SIGKILL."""
        subprocess.run(self.ctr("tasks", "kill", "--signal=SIGKILL", container), check=True, capture_output=True)

    def api_is_ready(self) -> bool:
        """Whether the API server says that it is ready."""
        return self._kubectl("get", "--raw", "/readyz")

    def ctr(self, *arguments: str) -> list[str]:
        """A command line of containerd's client, in the namespace of Kubernetes."""
        return ["ctr", f"--address={self.folder / 'containerd.sock'}", "--namespace=k8s.io", *arguments]

    def _commands(self) -> dict[str, list[str]]:
        """The node's processes, in the order in which they start."""
        folder, keys = self.folder, Keys.within(self.folder)
        inside = f"--kubeconfig={folder / 'inside.kubeconfig'}"
        commands = {
            "etcd": etcd_command(folder, 2379, 2380),
            "containerd": ["containerd", f"--config={folder / 'containerd.toml'}"],
            "kube-apiserver": [
                *api_server_command(folder, 2379, API_PORT),
                f"--advertise-address={NODE_ADDRESS}",
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
            "kubelet": [
                f"--config={folder / 'kubelet.json'}",
                f"--kubeconfig={folder / 'node.kubeconfig'}",
                f"--hostname-override={NODE_NAME}",
                f"--node-ip={NODE_ADDRESS}",
                f"--root-dir={folder / 'kubelet'}",
            ],
            "kube-proxy": [
                inside,
                f"--cluster-cidr={POD_RANGE}",
                f"--hostname-override={NODE_NAME}",
                "--proxy-mode=iptables",
                "--conntrack-max-per-core=0",  # a setting of the whole machine, which is not ours to change
            ],
            "coredns": [f"-conf={folder / 'Corefile'}"],
            "cluster.parts.volumes": [
                *("env", f"PYTHONPATH={HERE.parent}", sys.executable, "-m", "cluster.parts.volumes"),
                str(folder / "inside.kubeconfig"),
                str(folder / "volumes"),
            ],
            "cluster.parts.policies": [
                *("env", f"PYTHONPATH={HERE.parent}", sys.executable, "-m", "cluster.parts.policies"),
                str(folder / "inside.kubeconfig"),
            ],
        }
        for name, command in commands.items():
            if command[0].startswith("-"):
                command.insert(0, str(PROGRAMS[name].path))
        return {name: self.network.inside(*command) for name, command in commands.items()}

    def _import_pause(self) -> None:
        """Give containerd the image of the sandboxes, which it could pull from no registry."""
        listed = subprocess.run(self.ctr("images", "ls", "-q"), check=True, capture_output=True, text=True).stdout
        if PAUSE_IMAGE not in listed.split():
            self.load(images.make_pause(PAUSE_IMAGE), PAUSE_IMAGE)

    def _remove_containers(self) -> None:
        for kind, force in (("tasks", ("--force",)), ("containers", ())):
            listed = subprocess.run(self.ctr(kind, "ls", "-q"), check=False, capture_output=True, text=True)
            if names := listed.stdout.split():
                _succeeds(*self.ctr(kind, "rm", *force, *names))

    def _unmount(self) -> None:
        """Unmount what the kubelet and containerd mounted, the innermost first."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted(mounts, reverse=True):
            if mount.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=False)

    def _kubectl(self, *arguments: str) -> bool:
        return _succeeds(str(PROGRAMS["kubectl"].path), f"--kubeconfig={self.kubeconfig}", *arguments)


def _succeeds(*command: str) -> bool:
    """Whether a command ends with code 0; its output is ignored."""
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == 0
