"""The programs of a Kubernetes node, built from their Go modules and kept where all clones of this project find them.

No download of binaries and no image registry: a machine that reaches the Go module proxy can build them all.
`go.mod` beside this file pins Kubernetes and etcd, `go.sum` their contents; the `go.mod` in `cert-manager/` does so for
cert-manager. Each other program is built from its module alone, because one graph of versions would not fit them all.
Versions stand in the names of the folders, so a new version is built anew and an old clone keeps the one it has.
"""

import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
BUILD_SECONDS_MAX = 2400
GO_VERSION_MIN = (1, 24)  # the first that knows `tool` lines in go.mod


class NoCluster(Exception):
    """This machine can't run a Kubernetes node or API server; the text says why, for a skip."""


class Program(NamedTuple):
    """One program: the Go package of its `main`, and its version without the `v`."""

    package: str
    version: str
    module: str = ""  # folder of the Go module that builds it, relative to this file; empty: the package's module
    definitions: str = ""  # a module of which `deploy/crds` is kept beside the program

    @property
    def name(self) -> str:
        """`k8s.io/kubernetes/cmd/kubelet` is `kubelet`; a major version at the end is no name."""
        parts = [part for part in self.package.split("/") if not re.fullmatch(r"v\d+|server", part)]
        return parts[-1]

    @property
    def path(self) -> Path:
        """Where the built program is, or will be."""
        family = "kubernetes" if self.package.startswith("k8s.io/") else self.name
        return cache_folder() / f"{family}-{self.version}" / self.name

    @property
    def crds(self) -> Path:
        """The folder of the program's definitions, if it has some."""
        return self.path.parent / "crds"


def cache_folder() -> Path:
    """The folder of everything built, which outlives clones: `$TUSSOCK_CLUSTER_CACHE`, or one in the user's cache."""
    named = os.environ.get("TUSSOCK_CLUSTER_CACHE")
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else user_cache / "tussock-cluster"


def _pinned_version(module: str, folder: str = ".") -> str:
    """The version of a module in a folder's `go.mod`, without the `v`."""
    file = HERE / folder / "go.mod"
    found = re.search(rf"^(?:require)?\s*{re.escape(module)} v(\S+)", file.read_text(), re.MULTILINE)
    assert found, f"{module} is missing in {file}"
    return found[1]


CERT_MANAGER = "github.com/cert-manager/cert-manager"
KUBERNETES_VERSION = _pinned_version("k8s.io/kubernetes")
PROGRAMS = {
    program.name: program
    for program in (
        # Most wanted first: tests of CRDs and handlers need these two only.
        Program("go.etcd.io/etcd/server/v3", _pinned_version("go.etcd.io/etcd/server/v3"), "."),
        *(
            Program(f"k8s.io/kubernetes/cmd/{name}", KUBERNETES_VERSION, ".")
            for name in (
                "kube-apiserver",
                "kubectl",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
            )
        ),
        # What a pod's sandbox runs; it changes when Kubernetes does, if ever.
        Program("tussock.dev/testcluster/pause", KUBERNETES_VERSION, "."),
        Program("github.com/coredns/coredns", "1.12.4"),
        Program("helm.sh/helm/v3/cmd/helm", "3.22.0"),
        # MinIO's own tags are no versions to Go, so this is the last commit by its time.
        Program("github.com/minio/minio", "0.0.0-20260212201848-7aac2a2c5b7c"),
        # For tests of alerts.
        Program("github.com/prometheus/prometheus/cmd/promtool", "0.316.0"),
        Program(
            "tussock.dev/testcluster/cert-manager",
            _pinned_version(CERT_MANAGER, "cert-manager"),
            "cert-manager",
            definitions=CERT_MANAGER,
        ),
    )
}
API_SERVER = ("etcd", "kube-apiserver")
NODE = tuple(name for name in PROGRAMS if name not in ("cert-manager", "promtool"))
"""The programs of a node and of its work; cert-manager is for tests at an API server, promtool for those of alerts."""


def missing(names: tuple[str, ...] = NODE) -> list[str]:
    """The programs that are not built yet."""
    return [name for name in names if not os.access(PROGRAMS[name].path, os.X_OK)]


def search_path() -> str:
    """A `PATH` on which the built programs come first."""
    folders = dict.fromkeys(str(program.path.parent) for program in PROGRAMS.values())
    return os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])


def build(names: tuple[str, ...] = NODE, report: Callable[[str], None] = print) -> None:
    """Build the programs that are missing; `report` is called for each. Raises `NoCluster` where that can't be done."""
    if not missing(names):
        return
    check_go()
    with _only_builder():
        for name in missing(names):  # looked up again: another process may have built them while we waited
            started = time.monotonic()
            report(f"building {name} {PROGRAMS[name].version}")
            _build_one(PROGRAMS[name])
            report(f"built {name} in {time.monotonic() - started:.0f} s")


def check_go() -> None:
    """Raise `NoCluster` unless there is a Go that can build the programs."""
    go = shutil.which("go")
    if not go:
        raise NoCluster("no Go on the PATH, with which the programs of Kubernetes are built")
    told = subprocess.run([go, "env", "GOVERSION"], check=True, capture_output=True, text=True, timeout=60).stdout
    found = re.match(r"go(\d+)\.(\d+)", told)
    if not found or (int(found[1]), int(found[2])) < GO_VERSION_MIN:
        raise NoCluster(f"Go {'.'.join(map(str, GO_VERSION_MIN))} or newer is needed, {go} is {told.strip()}")


@contextmanager
def _only_builder() -> Iterator[None]:
    """Hold the lock of the cache, so that two processes don't build the same program at once."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (cache_folder() / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_one(program: Program) -> None:
    """Build one program beside its place, then move it there, so that an interrupted build is not taken for done."""
    building = program.path.parent / "building"
    building.mkdir(parents=True, exist_ok=True)
    stamp = "k8s.io/component-base/version.git"
    major, minor, _ = KUBERNETES_VERSION.split(".", 2)
    symbols = f"-X {stamp}Version=v{KUBERNETES_VERSION} -X {stamp}Major={major} -X {stamp}Minor={minor}"
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {symbols if program.module == '.' else ''}"]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": str(building), "GOFLAGS": ""}
    if program.module:
        command = ["go", "build", *flags, "-o", str(building / program.name), program.package]
    else:
        command = ["go", "install", *flags, f"{program.package}@v{program.version}"]
    folder = HERE / (program.module or ".")
    try:
        subprocess.run(
            command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX
        )
        if program.definitions:
            _keep_definitions(program, folder)
    except subprocess.CalledProcessError as error:
        raise NoCluster(f"Go could not build {program.name}: {error.stderr.strip()[-600:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NoCluster(f"Go did not build {program.name} within {BUILD_SECONDS_MAX} s") from error
    (building / program.name).rename(program.path)


def _keep_definitions(program: Program, folder: Path) -> None:
    """Copy the module's definitions: its sources may be gone when they are wanted."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", program.definitions]
    found = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    program.crds.mkdir(exist_ok=True)
    for file in (Path(found) / "deploy" / "crds").glob("*.yaml"):
        # Sources of modules are read-only, and a copy must be replaceable.
        shutil.copyfile(file, program.crds / file.name)
