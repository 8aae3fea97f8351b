"""A cgroup of the node, below which all its pods are.

The kubelet removes cgroups of pods that it doesn't know. Under the usual root it would take those of another kubelet
of this machine, such as the node of another clone.
"""

import contextlib
import os
import re
from pathlib import Path

from cluster.parts.daemons import end_all

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


def processes(name: str) -> set[int]:
    """The processes in the cgroup and in those below."""
    found: set[int] = set()
    for folder in _folders(name):
        with contextlib.suppress(FileNotFoundError):  # the kubelet may remove it meanwhile
            found |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
    return found - {0}  # of another namespace, which cannot be told from here


def end(name: str) -> None:
    """Kill all processes in the cgroup and in those below, and wait until they are gone.

    A run that was killed leaves its pods there. The name is a node's alone, so no others are there. Raises
    `RuntimeError` if some do not end.
    """
    for folder in _folders(name):
        for setting, value in (("cgroup.kill", "1"), ("freezer.state", "THAWED")):  # of version 2, and of version 1
            if (folder / setting).exists():
                with contextlib.suppress(FileNotFoundError):
                    (folder / setting).write_text(value)
    end_all(f"cgroup {name}", lambda: processes(name))


def remove(name: str) -> None:
    """Remove the cgroup and those below, after the end of all processes in them."""
    end(name)
    for folder in _folders(name):
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()


def _folders(name: str) -> list[Path]:
    """The cgroup and those below in all hierarchies, the innermost first."""
    if not re.fullmatch(r"tussock-[0-9a-z]+", name):
        raise ValueError(f"{name!r} is no cgroup of a node, which is called tussock-..., so it stays as it is")
    tops = [hierarchy / name for hierarchy in _hierarchies() if (hierarchy / name).exists()]
    # `rglob` raises when the kubelet removes a folder under it; `walk` leaves it out.
    found = [Path(folder) for top in tops for folder, _, _ in os.walk(top)]
    return sorted(found, key=lambda path: -len(path.parts))


def _hierarchies() -> list[Path]:
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink()]
