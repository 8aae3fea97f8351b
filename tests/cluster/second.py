"""A second node, which is added to the cluster, lost, and taken from it again, to see what a lost node means."""

import shutil
from pathlib import Path

from cluster import images
from cluster.binaries import NoCluster
from cluster.machine import Machine
from cluster.parts import cgroups, configuration
from cluster.parts.control_plane import Keys
from cluster.parts.network import remove_namespace


class SecondNode(Machine):
    """A node without a control plane, beside the one that has it; it has the images of that one."""

    def __init__(self, first: Machine) -> None:
        super().__init__(f"{first.name}2", 1, first.kubeconfig)
        self._first = first

    def up(self) -> None:
        """Add the node to the cluster, or let it come back after `lose`, and wait until it is Ready.

        It comes back as a machine does that starts again: with its images and its kubelet's files, but without
        processes, mounts and networks. Raises `NoCluster` if there is no cluster that it could be added to.
        """
        if self.is_up():
            return
        if not self._first.is_up():
            raise NoCluster("there is no first node to add a second one to: run `python -m cluster up`")
        self.end(self.pod_networks())
        shutil.rmtree(self.folder / "containerd" / "state", ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.network.up()
        self._first.network.connect(self.network)
        cgroups.make(self.name)
        keys = Keys.within(self._first.folder)
        configuration.write_node(self.folder, keys, self._first.network.node_address, self.network)
        self.start_containers()
        self._copy_images()
        for name in self.commands():
            self.start(name)
        self.wait_until_ready()

    def lose(self) -> None:
        """Lose the node, as when its machine has lost its power: all ends at once, and nobody is told.

        Its cable goes first, so that no connection is closed in order.
        """
        self.network.pull_cable()
        spaces = self.pod_networks()
        self.kill_all()
        for space in spaces:
            remove_namespace(space)

    def down(self) -> None:
        """Take the node from the cluster, with its pods, and remove all its state but images."""
        self.daemon("kubelet").stop()  # or it would report again
        if self.network.is_up() and self._first.daemon("kube-apiserver").pid:
            # Nobody else would end pods of a node that is gone, for a minute.
            mine = ("--all-namespaces", f"--field-selector=spec.nodeName={self.node_name}")
            self.kubectl("delete", "pods", *mine, "--force", "--grace-period=0", "--wait=false")
            self.kubectl("delete", f"node/{self.node_name}", "--ignore-not-found", "--timeout=30s")
        super().down()

    @property
    def layout(self) -> Path:
        """Where the first node keeps images: what it was given need not be brought there again."""
        return self._first.layout

    def _copy_images(self) -> None:
        """Take over the images of the first node, by all their names."""
        own, wanted, kept = self.digests(), self._first.digests(), images.kept(self.layout)
        # Each image has its id for a name, too, which containerd gives it.
        absent = {name for name, digest in wanted.items() if own.get(name) != digest and not name.startswith("sha256:")}
        for name in absent & kept.keys():
            images.give(name, self.ctr, self.layout)
        for name in absent - kept.keys():  # second names, by `tag`
            for same in [other for other in kept if wanted.get(other) == wanted[name]][:1]:
                self.tag(same, name)
