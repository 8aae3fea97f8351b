"""What a machine outside of the cluster needs to use a store: variables, and files with a certificate.

The files are in a folder that a user names. A marker in it says whose they are: nothing is overwritten but files that
the marker lists, for the same store. Only their owner can read them.
"""

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tussock.operator.manifests.bucket_access import minio_endpoint
from tussock.operator.manifests.transport_security import server_name
from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.probes.platform import Certificates
from tussock.operator.resources.object_store import ManagedStore, S3Store
from tussock.operator.resources.store import StoreResource

__all__ = ["FILES", "MARKER", "FolderOwner", "bucket_hint", "check_address", "exports", "write_files"]

MARKER = ".tussock-env.json"
FILES = ("ca.crt", "tls.crt", "tls.key", "env.sh")
MARKER_BYTES_MAX = 4096
_ADDRESS = re.compile(r"(?:[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]):(\d{1,5})")
_IN_CLUSTER = re.compile(r"https?://([\w.-]+\.svc(?:\.[\w.-]+)?)(?::(\d+))?")


class FolderOwner(NamedTuple):
    """The store that files are for."""

    namespace: str
    store: str
    uid: str


def check_address(address: str) -> str:
    """`host:port`; `ValueError` if it is something else."""
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[2]) < 65_536:
        raise ValueError(f"{address[:100]!r} is no HOST:PORT")
    return address


def exports(store: StoreResource, address: str, folder: Path | None) -> str:
    """The variables in which `tussock` and the Python client find the store, as a shell reads them.

    `folder` has the certificates; `None` without TLS.
    """
    values = {"TUSSOCK_STORE": f"tussock://{address}", "TUSSOCK_META": address}
    if folder is not None:
        values |= {
            "TUSSOCK_TLS_CA": str(folder / "ca.crt"),
            "TUSSOCK_TLS_CERT": str(folder / "tls.crt"),
            "TUSSOCK_TLS_KEY": str(folder / "tls.key"),
            "TUSSOCK_TLS_SERVER_NAME": server_name(store),
        }
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())


def bucket_hint(store: StoreResource) -> str:
    """What else it takes if the bucket's server has a name of the cluster, where rows are read; else empty."""
    match store.spec.object_store.backend:
        case ManagedStore():
            endpoint = minio_endpoint(store)
        case S3Store(endpoint=given):
            endpoint = given
        case _:
            endpoint = ""
    found = _IN_CLUSTER.match(endpoint)
    if found is None:
        return ""
    host, port = found[1], found[2] or ("443" if endpoint.startswith("https:") else "80")
    name, _, rest = host.partition(".")
    return (
        f"Rows are in the bucket at {endpoint}, a name of the cluster. So that this machine reaches it, keep running:\n"
        f"  kubectl port-forward --namespace {rest.partition('.')[0]} service/{name} {port}:{port}\n"
        f"and have in /etc/hosts: 127.0.0.1 {host}"
    )


def write_files(folder: Path, owner: FolderOwner, certificates: Certificates | None, text: str) -> None:
    """Write the certificates and `env.sh`; `KubectlFailed` if the folder has files that are not this command's."""
    files = {"env.sh": text.encode()}
    if certificates is not None:
        files |= {"ca.crt": certificates.ca, "tls.crt": certificates.certificate, "tls.key": certificates.key}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = _own_files(folder, owner)
        for name in files:
            if name not in own and os.path.lexists(folder / name):
                raise KubectlFailed(
                    f"{folder / name} is not of this command, and is not overwritten; name another folder"
                )
        # First, so that files of a command that was interrupted are known as its own.
        marker = {**owner._asdict(), "files": sorted({*own, *files})}
        _write(folder, MARKER, json.dumps(marker).encode())
        for name, data in files.items():
            _write(folder, name, data)
    except OSError as error:
        raise KubectlFailed(f"{error.filename or folder}: {error.strerror or error}") from error


def _own_files(folder: Path, owner: FolderOwner) -> set[str]:
    """The files in the folder that this command has written for that store."""
    marker = folder / MARKER
    if not os.path.lexists(marker):
        return set()
    held = _marker(marker)
    whose = FolderOwner(*(str(held.get(field, "")) for field in FolderOwner._fields))
    if whose != owner:
        same_name = whose[:2] == owner[:2]
        told = "an earlier StateStore, or one of another cluster," if same_name else "StateStore"
        raise KubectlFailed(
            f"{folder} has the files of {told} {whose.namespace}/{whose.store}; name another folder, or delete it"
        )
    listed = held.get("files")
    return {name for name in FILES if isinstance(listed, list) and name in listed}


def _marker(path: Path) -> Mapping[str, Any]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(handle, "rb") as file:
            found = json.loads(file.read(MARKER_BYTES_MAX))
    except (OSError, ValueError):
        # A link, a folder, or something else.
        found = None
    if not isinstance(found, dict):
        raise KubectlFailed(f"{path} is not of this command; name another folder")
    return found


def _write(folder: Path, name: str, data: bytes) -> None:
    """Replace a file as a whole; a link in its place is replaced, and not what it leads to."""
    partial = folder / f".{name}.{os.getpid()}"
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        partial.rename(folder / name)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
