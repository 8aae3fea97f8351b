"""A cgroup of the node, below which all its pods are.

The kubelet removes cgroups of pods that it doesn't know. Under the usual root it would take those of another kubelet
of this machine, such as the node of another clone.
"""

from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = "+cpu +cpuset +memory +pids"
# All pods together count as one process of the machine would, and few of them ask for CPU: beside a build they would
# get next to none. Eight times the usual weight, in the units of both versions.
CPU_WEIGHTS = {"cpu.shares": "8192", "cpu.weight": "800"}


def make(name: str) -> None:
    """Make the cgroup, in each hierarchy where cgroups are still of version 1."""
    if (ROOT / "cgroup.controllers").exists():
        (ROOT / "cgroup.subtree_control").write_text(CONTROLLERS)
    for hierarchy in _hierarchies():
        folder = hierarchy / name
        folder.mkdir(exist_ok=True)
        # A cpuset of version 1 starts empty, and nothing can run in it until it has its parent's processors.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (folder / setting).exists() and (ROOT / "cpuset").exists():
                (folder / setting).write_text((hierarchy / setting).read_text())
        for setting, weight in CPU_WEIGHTS.items():
            if (folder / setting).exists():
                (folder / setting).write_text(weight)


def remove(name: str) -> None:
    """Remove the cgroup and those below, in which no process may be left."""
    for hierarchy in _hierarchies():
        top = hierarchy / name
        if top.exists():
            below = sorted((path for path in top.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
            for folder in [*below, top]:
                folder.rmdir()


def _hierarchies() -> list[Path]:
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink()]
