"""What each node of the cluster consists of: containerd, kubelet, services and policies, in a folder and a network.

The first node (`node.py`) has the control plane, too; a second one (`second.py`) comes and goes.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from cluster import images
from cluster.binaries import HERE, PROGRAMS
from cluster.parts import cgroups
from cluster.parts.configuration import NODE_NAMES, PAUSE_IMAGE
from cluster.parts.daemons import Daemon, end_all, wait_for
from cluster.parts.network import CLUSTER_RANGE, Network, namespaces_of, remove_namespace

Commands = dict[str, list[str]]
"""Of each process the command line, in the order in which they start."""


class Machine:
    """One node; `name` is that of its folder, network and cgroup, `node_name` the one that Kubernetes knows."""

    def __init__(self, name: str, number: int, kubeconfig: Path | None = None) -> None:
        """`number` counts the nodes of the cluster from 0; `kubeconfig` is by default in the node's own folder."""
        self.name = name
        self.node_name = NODE_NAMES[number]
        self.folder = Path("/var/tmp") / name
        self.network = Network(name, number)
        self.kubeconfig = kubeconfig or self.folder / "kubeconfig"

    def daemon(self, name: str) -> Daemon:
        """One of the node's processes: `kubelet`, `containerd`..."""
        return Daemon(name, self.folder)

    def is_up(self) -> bool:
        """Whether all processes run."""
        return self.network.is_up() and all(self.daemon(name).pid for name in self.commands())

    def start(self, name: str) -> None:
        """Start one of the node's processes, also again after a test has stopped it."""
        command = {**self.commands(), **self.commands_on_demand()}[name]
        if command[0].startswith("-"):
            command = [str(PROGRAMS[name].path), *command]
        self.daemon(name).start(self.network.inside(*command))

    def commands(self) -> Commands:
        """The processes; where no program stands first, it is the one of `PROGRAMS` with the process's name."""
        folder = self.folder
        inside = f"--kubeconfig={folder / 'inside.kubeconfig'}"
        return {
            "containerd": ["containerd", f"--config={folder / 'containerd.toml'}"],
            "kubelet": [
                f"--config={folder / 'kubelet.json'}",
                f"--kubeconfig={folder / 'node.kubeconfig'}",
                f"--hostname-override={self.node_name}",
                f"--node-ip={self.network.node_address}",
                f"--root-dir={folder / 'kubelet'}",
            ],
            "kube-proxy": [
                inside,
                f"--cluster-cidr={CLUSTER_RANGE}",
                f"--hostname-override={self.node_name}",
                "--proxy-mode=iptables",
                "--conntrack-max-per-core=0",  # a setting of the whole machine, which is not ours to change
            ],
            "cluster.parts.policies": self.part("policies", folder / "inside.kubeconfig"),
        }

    def commands_on_demand(self) -> Commands:
        """Processes that only a test starts which needs them."""
        return {}

    def part(self, module: str, *arguments: Path | str) -> list[str]:
        """The command of one of our own programs."""
        started = ("env", f"PYTHONPATH={HERE.parent}", sys.executable, "-m", f"cluster.parts.{module}")
        return [*started, *map(str, arguments)]

    def start_containers(self) -> None:
        """Start containerd, and give it the image of the sandboxes, which it could pull from no registry."""
        self.start("containerd")
        wait_for("containerd", lambda: succeeds(*self.ctr("version")), self.daemon("containerd"))
        if PAUSE_IMAGE not in self.digests():
            self.load(images.make_pause(PAUSE_IMAGE), PAUSE_IMAGE)

    def wait_until_ready(self) -> None:
        """Wait until Kubernetes would start pods here."""
        ready = ("wait", "--for=condition=Ready", f"node/{self.node_name}", "--timeout=1s")
        wait_for("ready node", lambda: self.kubectl(*ready), self.daemon("kubelet"))

    def down(self) -> None:
        """Stop everything, pods first, and remove all state but images.

        Of a run that was killed, too: its pods and their shims live on without a kubelet and a containerd.
        """
        self.daemon("kubelet").stop()  # or it would start its pods again
        spaces = self.pod_networks()
        if self.daemon("containerd").pid:
            self._remove_containers()
        for name in reversed([*self.commands(), *self.commands_on_demand()]):
            self.daemon(name).stop(signal.SIGKILL if name in ("etcd", "kube-apiserver") else signal.SIGTERM)
        self.end(spaces)
        for left in self.folder.iterdir() if self.folder.exists() else ():
            if left.is_dir() and left.name != "containerd":
                shutil.rmtree(left)
            elif left.is_file():
                left.unlink()

    def pod_networks(self) -> set[str]:
        """The network namespaces of pods that run."""
        return namespaces_of(cgroups.processes(self.name)) - {self.name}

    def end(self, spaces: set[str]) -> None:
        """Kill all processes that are left, and remove cgroups, mounts and networks, also `spaces`, those of pods."""
        self.kill_all()
        self._unmount()
        for space in spaces:
            remove_namespace(space)
        self.network.down()
        cgroups.remove(self.name)

    def kill_all(self) -> None:
        """Kill pods, and all other processes of the node."""
        cgroups.end(self.name)
        end_all(f"network {self.name}", self.network.processes)

    def load(self, image: str, name: str) -> None:
        """Give the node an image by the id that `images.build` answered, unless it has it under this name already."""
        stamp = self.folder / "containerd" / "loaded" / name.replace("/", "_")
        if not stamp.exists() or stamp.read_text() != image:
            images.load(image, name, self.ctr, self.layout)
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(image)

    @property
    def layout(self) -> Path:
        """Where images are kept on their way to the node."""
        return self.folder / "containerd" / "layout"

    def tag(self, name: str, another: str) -> None:
        """Give an image that the node has another name, too, which makes it another image to Kubernetes."""
        subprocess.run(self.ctr("images", "tag", "--force", name, another), check=True, capture_output=True)

    def digests(self) -> dict[str, str]:
        """The images that containerd has, by their names."""
        listed = subprocess.run(self.ctr("images", "ls"), check=True, capture_output=True, text=True).stdout
        # Name, type, digest... below a line of titles.
        return {words[0]: words[2] for line in listed.splitlines()[1:] if len(words := line.split()) > 2}

    def kill(self, container: str) -> None:
        """End all processes of a container, by its id, with SIGKILL."""
        subprocess.run(self.ctr("tasks", "kill", "--signal=SIGKILL", container), check=True, capture_output=True)

    def ctr(self, *arguments: str) -> list[str]:
        """A command line of containerd's client, in the namespace of Kubernetes."""
        return ["ctr", f"--address={self.folder / 'containerd.sock'}", "--namespace=k8s.io", *arguments]

    def kubectl(self, *arguments: str) -> bool:
        """Whether a call of kubectl succeeds."""
        return succeeds(str(PROGRAMS["kubectl"].path), f"--kubeconfig={self.kubeconfig}", *arguments)

    def api_is_ready(self) -> bool:
        """Whether the API server says that it is ready."""
        return self.kubectl("get", "--raw", "/readyz")

    def _remove_containers(self) -> None:
        for kind, force in (("tasks", ("--force",)), ("containers", ())):
            listed = subprocess.run(self.ctr(kind, "ls", "-q"), check=False, capture_output=True, text=True)
            if names := listed.stdout.split():
                succeeds(*self.ctr(kind, "rm", *force, *names))

    def _unmount(self) -> None:
        """Unmount what the kubelet and containerd mounted, the innermost first."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted(mounts, reverse=True):
            if mount.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", mount], check=False)


def succeeds(*command: str) -> bool:
    """Whether a command ends with code 0; its output is ignored."""
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == 0
