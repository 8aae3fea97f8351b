"""The options and arguments that several commands share, each defined once, and what they lead to."""

from typing import Annotated, Any, TypeAlias

import typer

from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.kubectl import Kubectl, KubectlFailed, NotThere
from tussock.operator.resources.common import GROUP, store_place

__all__ = [
    "Context",
    "Kubeconfig",
    "Namespace",
    "StoreName",
    "Timeout",
    "kubectl_of",
    "leader_of",
    "namespace_of",
    "parts_of",
    "status_of",
    "store_of",
    "where",
]

SECONDS_MAX = 86_400

Namespace: TypeAlias = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Of the store; the current one of the context if left out."),
]
Context: TypeAlias = Annotated[str | None, typer.Option("--context", help="Of the kubeconfig.")]
Kubeconfig: TypeAlias = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="The kubeconfig.")]
StoreName: TypeAlias = Annotated[str, typer.Argument(metavar="STORE", help="Name of the StateStore.")]
Timeout: TypeAlias = Annotated[
    int, typer.Option("--timeout", min=1, max=SECONDS_MAX, metavar="SECONDS", help="How long to wait.")
]

_PARTS = ("metas", "compactors", "computes", "statestorebackups", "statestoreclients")


def kubectl_of(namespace: str | None, context: str | None, kubeconfig: str | None) -> Kubectl:
    """Kubectl as the options say; `KubectlFailed` if there is none."""
    given = {"namespace": namespace, "context": context, "kubeconfig": kubeconfig}
    return Kubectl([f"--{name}={value}" for name, value in given.items() if value])


def store_of(kubectl: Kubectl, name: str) -> Manifest:
    """The `StateStore` of that name; `NotThere` if there is none in the namespace."""
    try:
        return kubectl.object(f"statestores.{GROUP}", name)
    except NotThere:
        raise NotThere(
            f"there is no StateStore {name} in {where(kubectl)}; use --namespace to look in another one"
        ) from None


def namespace_of(kubectl: Kubectl) -> str:
    """The namespace that a command is about; `KubectlFailed` if the kubeconfig cannot be read."""
    given = [option for option in kubectl.options if option.startswith("--namespace=")]
    if given:
        return given[0].partition("=")[2]
    return kubectl.run("config", "view", "--minify", "--output=jsonpath={..namespace}").strip() or "default"


def where(kubectl: Kubectl) -> str:
    """The namespace that a command is about, for people."""
    given = [option.removeprefix("--namespace=") for option in kubectl.options if option.startswith("--namespace=")]
    return f"namespace {given[0]}" if given else "the context's namespace"


def parts_of(kubectl: Kubectl, store: str = "") -> list[Manifest]:
    """Everything that belongs to a store, of all kinds; to all stores of the namespace without one."""
    found = [body for resource in _PARTS for body in kubectl.objects(f"{resource}.{GROUP}")]
    near = [body for body in found if store_place(body)[0] == body["metadata"]["namespace"]]
    return [body for body in near if store in ("", store_place(body)[1])]


def status_of(body: Manifest) -> dict[str, Any]:
    """The status of an object; empty if no operator has written one."""
    return body.get("status") or {}


def leader_of(store: Manifest) -> str:
    """The pod that leads a store, as the operator saw it last; `KubectlFailed` if there is none."""
    leader = status_of(store).get("leader")
    if not leader:
        name = store["metadata"]["name"]
        raise KubectlFailed(f"StateStore {name} has no leader; see kubectl tussock status {name}")
    return str(leader)
