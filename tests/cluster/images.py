"""Builds images with buildah, which needs no daemon, and gives them to the node, which needs no registry."""

import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.binaries import HERE, PROGRAMS

ROOT = HERE.parent.parent
BASE = "localhost/tussock-base:bookworm"
BUILD_SECONDS_MAX = 1800
TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
REF_NAME = "org.opencontainers.image.ref.name"
# What an image of Debian for containers leaves out too.
UNNEEDED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/lib/apt/lists",
    "var/cache/apt",
)


def make_pause(name: str) -> str:
    """Build the image of the pods' sandboxes and return its id."""
    folder = PROGRAMS["pause"].path.parent
    return _buildah("bud", "--quiet", "--tag", name, "--file", str(HERE / "pause" / "Dockerfile"), str(folder))


def make_base() -> None:
    """Build the image that stands in for `debian:bookworm-slim`, unless it is there; takes half a minute."""
    if _succeeds("buildah", "inspect", "--type=image", BASE):
        return
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        tree = Path(folder, "root")
        _run("debootstrap", "--variant=minbase", "--include=ca-certificates", "bookworm", str(tree))
        for path in UNNEEDED:
            shutil.rmtree(tree / path, ignore_errors=True)
            (tree / path).mkdir(parents=True)
        dockerfile = Path(folder, "Dockerfile")
        dockerfile.write_text("FROM scratch\nCOPY root/ /\n")
        _buildah("bud", "--quiet", "--tag", BASE, "--file", str(dockerfile), folder)


def build(name: str, dockerfile: Path, context: Path = ROOT) -> str:
    """Build an image on the tests' base and return its id; layers with unchanged inputs are reused."""
    make_base()
    return _buildah(
        "bud",
        "--quiet",
        "--layers",
        "--isolation=chroot",
        "--network=host",
        # Where a proxy opens TLS, pip has to trust what this machine trusts.
        f"--volume={TRUSTED}:/run/trusted.pem:ro",
        "--build-arg=PIP_CERT=/run/trusted.pem",
        f"--build-arg=BASE={BASE}",
        "--tag",
        name,
        "--file",
        str(dockerfile),
        str(context),
    )


def load(image: str, name: str, ctr: Callable[..., list[str]], layout: Path) -> None:
    """Give an image, by its id or name, to the containerd that `ctr` makes commands for; there it gets that name.

    `layout` is a folder that keeps what was given before: only layers that containerd lacks are sent, so an image
    of a gigabyte whose code has changed takes seconds.
    """
    _buildah("push", "--quiet", "--disable-compression", image, f"oci:{layout}:{name}")
    give(name, ctr, layout)


def give(name: str, ctr: Callable[..., list[str]], layout: Path) -> None:
    """Give an image that `layout` keeps under this name to the containerd that `ctr` makes commands for."""
    index = _index(layout)
    ours = kept(layout)[name]
    manifest = json.loads((layout / _blob(ours)).read_text())
    there = set(_run(*ctr("content", "ls", "--quiet")).split())
    blobs = [ours, manifest["config"], *(layer for layer in manifest["layers"] if layer["digest"] not in there)]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        top, archive = Path(folder, "index.json"), Path(folder, "image.tar")
        top.write_text(json.dumps({**index, "manifests": [ours]}))
        with tarfile.open(archive, "w") as tar:
            tar.add(layout / "oci-layout", "oci-layout")
            tar.add(top, "index.json")
            for path in dict.fromkeys(map(_blob, blobs)):
                tar.add(layout / path, path)
        _run(*ctr("images", "import", str(archive)))


def kept(layout: Path) -> dict[str, dict[str, Any]]:
    """What an OCI layout has, by its names."""
    found = ((each.get("annotations", {}).get(REF_NAME), each) for each in _index(layout)["manifests"])
    return {name: each for name, each in found if name}  # what had a name before is still there, without one


def _index(layout: Path) -> dict[str, Any]:
    found = json.loads((layout / "index.json").read_text())
    assert isinstance(found, dict)
    return found


def _blob(descriptor: dict[str, str]) -> str:
    """Where an OCI layout has what a descriptor describes."""
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def compressed_bytes(name: str) -> int:
    """What a registry would hold of an image: its layers, compressed with gzip."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        archive = Path(folder, "image.tar")
        _buildah("push", "--quiet", name, f"oci-archive:{archive}")
        with tarfile.open(archive) as tar:

            def read(path: str) -> dict[str, list[dict[str, str]]]:
                member = tar.extractfile(path)
                assert member is not None
                return json.load(member)

            digest = read("index.json")["manifests"][0]["digest"].removeprefix("sha256:")
            return sum(int(layer["size"]) for layer in read(f"blobs/sha256/{digest}")["layers"])


def _buildah(*arguments: str) -> str:
    return _run("buildah", *arguments)


def _run(*command: str) -> str:
    """What a command prints; its output is in the error if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout.strip()


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0
