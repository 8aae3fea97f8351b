"""`kubectl tussock approve`, `backup`, `compact` and `release`: what a store needs now and then."""

import sys
from typing import Annotated

import typer

from tussock.operator.manifests.meta_config import GRPC_PORT
from tussock.operator.manifests.transport_security import server_name
from tussock.operator.planning.words.approvals import APPROVED
from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.plugin.meta_nodes.access import certificates_of, meta_node
from tussock.operator.plugin.meta_nodes.compaction import compact as compact_at
from tussock.operator.plugin.options import (
    Context,
    Kubeconfig,
    Namespace,
    StoreName,
    Timeout,
    kubectl_of,
    leader_of,
    status_of,
    store_of,
)
from tussock.operator.plugin.release import release as release_all
from tussock.operator.resources.common import API_VERSION, GROUP
from tussock.operator.resources.store import parse_store
from tussock.statestore.base.system import RealSystem

__all__ = ["approve", "backup", "compact", "release"]

_GRACE_SECONDS = 30.0
"""For kubectl to say that it has waited in vain."""


def approve(
    store: StoreName,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Approve of the image that a store waits to change to, as its status names it; of no later one."""
    kubectl = kubectl_of(namespace, context, kubeconfig)
    body = store_of(kubectl, store)
    if body["metadata"].get("deletionTimestamp"):
        raise KubectlFailed(f"StateStore {store} is being deleted: nothing of it changes to another image")
    image = str(status_of(body).get("pendingImage", ""))
    if not image:
        raise KubectlFailed(f"no image of StateStore {store} waits for approval; see kubectl tussock status {store}")
    kubectl.patch(f"statestores.{GROUP}", store, {"metadata": {"annotations": {APPROVED: image}}})
    sys.stdout.write(f"Approved: {store} changes to {image}.\n")


def backup(
    store: StoreName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the StateStoreBackup, and of the backup.")],
    comment: Annotated[str, typer.Option("--comment", help="For people.", show_default=False)] = "",
    timeout: Timeout = 300,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Make a backup now, as a StateStoreBackup of that name, and wait for it."""
    kubectl = kubectl_of(namespace, context, kubeconfig)
    # Else it would be waited for a store that is not there.
    store_of(kubectl, store)
    spec = {"storeRef": {"name": store}, **({"comment": comment} if comment else {})}
    kubectl.create({"apiVersion": API_VERSION, "kind": "StateStoreBackup", "metadata": {"name": name}, "spec": spec})
    resource = f"statestorebackups.{GROUP}"
    try:
        waiting = ("wait", f"{resource}/{name}", "--for=condition=Ready", f"--timeout={timeout}s")
        kubectl.run(*waiting, seconds=timeout + _GRACE_SECONDS)
    except KubectlFailed as error:
        held = status_of(kubectl.object(resource, name)).get("conditions") or [{}]
        raise KubectlFailed(f"no backup yet: {held[0].get('message', error)}") from error
    made = kubectl.object(resource, name)["status"]
    sys.stdout.write(f"Backup {made['backupName']} of {store} holds epoch {made['epoch']}.\n")


def compact(
    store: StoreName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Name of the table.")],
    timeout: Timeout = 300,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Merge a table into one sorted run, and wait for it."""
    kubectl = kubectl_of(namespace, context, kubeconfig)
    body = store_of(kubectl, store)
    leader, found = leader_of(body), parse_store(body)
    certificates = certificates_of(kubectl, found)
    with (
        kubectl.forward(f"pod/{leader}", GRPC_PORT) as forward,
        meta_node(forward.address, server_name(found), certificates) as node,
    ):
        compact_at(node, table, timeout, RealSystem())
    sys.stdout.write(f"Table {table} of {store} is compacted.\n")


def release(
    store: Annotated[
        str | None, typer.Argument(metavar="STORE", help="And its parts; all of the namespace if left out.")
    ] = None,
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Release deleted objects if no operator is left to clean up after them."""
    kubectl = kubectl_of(namespace, context, kubeconfig)
    lines = release_all(kubectl, store or "", everywhere=all_namespaces)
    if store and not lines:
        raise KubectlFailed(
            f"StateStore {store} has nothing to release: only deleted objects are released; use "
            "--namespace to look in another namespace"
        )
    sys.stdout.write("\n".join([*lines, f"{len(lines)} objects were released.\n"]))
