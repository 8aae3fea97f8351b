"""`kubectl tussock console` and `env`: a store as seen from a machine outside of the cluster."""

import enum
import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from tussock.operator.manifests.meta_config import GRPC_PORT, HTTP_PORT
from tussock.operator.manifests.transport_security import Identity, has_tls, server_name
from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.console import tls_context, way_in
from tussock.operator.plugin.kubectl import Kubectl, KubectlFailed
from tussock.operator.plugin.laptop import FolderOwner, bucket_hint, check_address, exports, write_files
from tussock.operator.plugin.meta_nodes.access import certificates_of
from tussock.operator.plugin.options import (
    Context,
    Kubeconfig,
    Namespace,
    StoreName,
    kubectl_of,
    leader_of,
    status_of,
    store_of,
)
from tussock.operator.resources.store import parse_store
from tussock.statestore.base.system import RealSystem

__all__ = ["ClientRole", "console", "env"]


class ClientRole(enum.StrEnum):
    """What a client may do."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


_IDENTITIES: dict[ClientRole, Identity] = {
    ClientRole.READER: "client-reader",
    ClientRole.WRITER: "client-writer",
    ClientRole.ADMIN: "client-admin",
}


def console(
    store: StoreName,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65_535, help="Of this machine; 0 for a free one.")
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Open the console of a store in a browser, until Ctrl-C.

    It is that of the leader, or of another meta node that serves if there is no leader. With TLS it is shown with the
    certificate of a reader, which you need to be allowed to read.
    """
    kubectl = kubectl_of(namespace, context, kubeconfig)
    body = store_of(kubectl, store)
    found = parse_store(body)
    certificates = certificates_of(kubectl, found, "client-reader")
    pod = _serving_pod(kubectl, body)
    if certificates is None:
        with kubectl.forward(f"pod/{pod}", HTTP_PORT, port) as forward:
            _show(f"http://{forward.address}/", store, pod, no_browser=no_browser)
            raise KubectlFailed(f"the way to pod {pod} is lost: {forward.wait()}")
    shown = tls_context(certificates)
    with (
        kubectl.forward(f"pod/{pod}", HTTP_PORT) as forward,
        way_in(port, forward.address, shown, server_name(found), RealSystem()) as address,
    ):
        _show(address, store, pod, no_browser=no_browser)
        raise KubectlFailed(f"the way to pod {pod} is lost: {forward.wait()}")


def _serving_pod(kubectl: Kubectl, store: Manifest) -> str:
    """The leader's pod, else one of a meta node that is ready; `KubectlFailed` if there is none."""
    name = store["metadata"]["name"]
    pods = kubectl.objects("pods", labels=f"tussock.dev/store={name},app.kubernetes.io/component=meta")
    leader = status_of(store).get("leader")
    names = [pod["metadata"]["name"] for pod in pods if _is_ready(pod)]
    if leader in names:
        return str(leader)
    if not names:
        raise KubectlFailed(f"no meta node of StateStore {name} serves; see kubectl tussock status {name}")
    return str(names[0])


def _is_ready(pod: Manifest) -> bool:
    held = status_of(pod).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in held)


def _show(address: str, store: str, pod: str, *, no_browser: bool) -> None:
    sys.stdout.write(f"The console of {store}, from pod {pod}, until Ctrl-C: {address}\n")
    sys.stdout.flush()
    # Without a screen, Python would run a browser in this terminal.
    has_screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if has_screen and not no_browser:
        webbrowser.open(address)


def _outside_addresses(store: Manifest) -> str:
    """The addresses of a store's meta nodes outside of the cluster; `KubectlFailed` if it has none."""
    name, found = store["metadata"]["name"], str(status_of(store).get("outsideEndpoint", ""))
    addresses = found.removeprefix("tussock://")
    try:
        # From a status, which more people may write than run what is printed.
        return ",".join(map(check_address, addresses.split(",")))
    except ValueError:
        raise KubectlFailed(
            f"StateStore {name} has no address outside of the cluster: give it meta.outside, or see with kubectl "
            f"tussock status {name} why it has none"
        ) from None


def env(
    store: StoreName,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", "-d", metavar="FOLDER", help="Where the certificate goes; needed with TLS.", show_default=False
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            "-a",
            metavar="HOST:PORT",
            help="Where this machine reaches the store, if not by a forwarded port.",
            show_default=False,
        ),
    ] = None,
    outside: Annotated[
        bool, typer.Option("--outside", help="By the addresses that the store has outside of the cluster.")
    ] = False,
    role: Annotated[ClientRole, typer.Option("--role", "-r", help="What the certificate allows.")] = ClientRole.READER,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the variables with which `tussock` and the Python client use a store from this machine.

    For a shell: eval "$(kubectl tussock env STORE -d FOLDER)". The same is in FOLDER/env.sh. What else it takes, such
    as a forwarded port, is said on stderr. Files of others are not overwritten.
    """
    if outside and address:
        raise typer.BadParameter("--address and --outside both say where the store is: give one of them")
    try:
        chosen = check_address(address or f"127.0.0.1:{GRPC_PORT}")
    except ValueError as error:
        raise typer.BadParameter(f"--address {error}") from None
    kubectl = kubectl_of(namespace, context, kubeconfig)
    body = store_of(kubectl, store)
    found = parse_store(body)
    if has_tls(found) and folder is None:
        raise typer.BadParameter(f"StateStore {store} uses TLS: name a folder for its certificate with --folder")
    if outside:
        chosen = _outside_addresses(body)
    leader = None if address or outside else leader_of(body)
    certificates = certificates_of(kubectl, found, _IDENTITIES[role])
    place = None if folder is None else folder.expanduser().absolute()
    text = exports(found, chosen, place if certificates is not None else None)
    if place is not None:
        owner = FolderOwner(found.namespace, store, found.metadata.uid)
        write_files(place, owner, certificates, text)
    sys.stdout.write(text)
    if leader is not None:
        sys.stderr.write(
            f"Keep running, and again with the new leader when that changes:\n"
            f"  kubectl port-forward --namespace {found.namespace} pod/{leader} {GRPC_PORT}:{GRPC_PORT}\n"
        )
    if hint := bucket_hint(found):
        sys.stderr.write(f"{hint}\n")
