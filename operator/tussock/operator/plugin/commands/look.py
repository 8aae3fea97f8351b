"""`kubectl tussock status`, `epochs` and `logs`: how a store and its parts are."""

import enum
import sys
from typing import Annotated

import typer

from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.plugin.options import (
    Context,
    Kubeconfig,
    Namespace,
    StoreName,
    kubectl_of,
    parts_of,
    store_of,
    where,
)
from tussock.operator.plugin.tables import epochs_text, status_text
from tussock.operator.resources.common import GROUP

__all__ = ["Component", "epochs", "logs", "status"]


class Component(enum.StrEnum):
    """What a pod of a store is."""

    META = "meta"
    COMPACTOR = "compactor"
    COMPUTE = "compute"
    MINIO = "minio"
    RESTORE = "restore"
    BACKUP = "backup"


def status(
    store: Annotated[str | None, typer.Argument(metavar="STORE", help="All of the namespace if left out.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show how a store and all its parts are."""
    kubectl = kubectl_of(namespace, context, kubeconfig)
    stores = [store_of(kubectl, store)] if store else kubectl.objects(f"statestores.{GROUP}")
    if not stores:
        raise KubectlFailed(f"there is no StateStore in {where(kubectl)}; use --namespace to look in another one")
    sys.stdout.write(status_text(stores, parts_of(kubectl)))


def epochs(
    store: StoreName, namespace: Namespace = None, context: Context = None, kubeconfig: Kubeconfig = None
) -> None:
    """Show what is committed, by which job, and what backups hold."""
    kubectl = kubectl_of(namespace, context, kubeconfig)
    body = store_of(kubectl, store)
    sys.stdout.write(epochs_text(body, parts_of(kubectl, store)))


def logs(
    store: StoreName,
    component: Annotated[
        Component | None, typer.Option("--component", "-c", help="Of these pods only.", show_default=False)
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    tail: Annotated[int, typer.Option("--tail", min=-1, help="Lines of each pod; -1 for all.")] = 100,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Show the logs of all pods of a store."""
    kubectl = kubectl_of(namespace, context, kubeconfig)
    store_of(kubectl, store)
    chosen = f"tussock.dev/store={store}"
    if component is not None:
        chosen += f",app.kubernetes.io/component={component.value}"
    following = ["--follow"] if follow else []
    kubectl.become(
        *("logs", f"--selector={chosen}", "--prefix", "--all-containers", "--max-log-requests=100"),
        *(f"--tail={tail}", *following),
    )
