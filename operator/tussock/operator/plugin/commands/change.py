"""`kubectl tussock restart` and `promote`: other pods in place of the present ones, another leader."""

import enum
import sys
from datetime import UTC, datetime
from typing import Annotated

import typer

from tussock.operator.manifests.meta_config import GRPC_PORT
from tussock.operator.manifests.transport_security import server_name
from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.plugin.meta_nodes.access import certificates_of, meta_node
from tussock.operator.plugin.meta_nodes.promotion import (
    address_of,
    await_leadership,
    check_replica,
    hand_over,
    standing_of,
)
from tussock.operator.plugin.options import (
    Context,
    Kubeconfig,
    Namespace,
    StoreName,
    Timeout,
    kubectl_of,
    parts_of,
    store_of,
)
from tussock.operator.plugin.restarts import PLURALS, ask, refuse, wait
from tussock.operator.resources.store import parse_store
from tussock.statestore.base.system import RealSystem

__all__ = ["Restarted", "promote", "restart"]


class Restarted(enum.StrEnum):
    """What is restarted."""

    META = "meta"
    COMPACTOR = "compactor"
    COMPUTE = "compute"


def restart(
    store: StoreName,
    component: Annotated[
        Restarted | None,
        typer.Option("--component", "-c", help="These pods only; all three if left out.", show_default=False),
    ] = None,
    compute: Annotated[
        str | None, typer.Option("--compute", metavar="NAME", help="The pods of this Compute only.", show_default=False)
    ] = None,
    timeout: Timeout = 900,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Replace the pods of a store one by one, the leader's last, and wait for it.

    The operator does it, as after a change of a spec: compactors follow meta nodes, and jobs end their batch.
    """
    if compute is not None and component not in (None, Restarted.COMPUTE):
        raise typer.BadParameter(f"--compute names a Compute, and --component asks for {component.value}s")
    system = RealSystem()
    kubectl = kubectl_of(namespace, context, kubeconfig)
    body = store_of(kubectl, store)
    parts = _chosen(parts_of(kubectl, store), store, component, compute)
    refuse(body, parts)
    stamp = _stamp(system.now_ms())
    ask(kubectl, parts, stamp)
    wait(kubectl, store, parts, stamp, timeout, system)
    names = ", ".join(f"{part['kind']} {part['metadata']['name']}" for part in parts)
    sys.stdout.write(f"Restarted: {names}.\n")


def _stamp(now_ms: int) -> str:
    """The time in the annotation: no two restarts have the same."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _chosen(parts: list[Manifest], store: str, component: Restarted | None, compute: str | None) -> list[Manifest]:
    """What is to be restarted, meta nodes first; `KubectlFailed` if there is nothing of that kind."""
    wanted = "compute" if compute is not None else (component.value if component else "")
    found = [
        part
        for kind in PLURALS
        for part in parts
        if part["kind"] == kind and wanted in ("", kind.lower()) and compute in (None, part["metadata"]["name"])
    ]
    if not found:
        what = f"Compute {compute}" if compute is not None else (wanted.capitalize() or "Meta, Compactor or Compute")
        raise KubectlFailed(f"StateStore {store} has no {what}; see kubectl tussock status {store}")
    return found


def promote(
    store: StoreName,
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod of the meta node that is to lead.")],
    timeout: Timeout = 60,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Let a certain meta node of a store lead, and wait for it.

    Clients go on at the new leader; what the former one has committed stays.
    """
    kubectl = kubectl_of(namespace, context, kubeconfig)
    found = parse_store(store_of(kubectl, store))
    chosen = kubectl.object("pods", pod)
    check_replica(chosen, store)
    certificates, name = certificates_of(kubectl, found), server_name(found)
    with kubectl.forward(f"pod/{pod}", GRPC_PORT) as forward, meta_node(forward.address, name, certificates) as node:
        standing = standing_of(node)
        if standing.role == "leader":
            sys.stdout.write(f"Pod {pod} leads {store} already, in term {standing.term}.\n")
            return
        metas = kubectl.objects("pods", labels=f"tussock.dev/store={store},app.kubernetes.io/component=meta")
        leaders = [one["metadata"]["name"] for one in metas if address_of(one) == standing.leader]
        if not leaders:
            raise KubectlFailed(
                f"StateStore {store} has no leader that could hand over: pod {pod} knows "
                f"{standing.leader or 'none'}; see kubectl tussock status {store}"
            )
        with (
            kubectl.forward(f"pod/{leaders[0]}", GRPC_PORT) as towards,
            meta_node(towards.address, name, certificates) as leader,
        ):
            hand_over(leader, standing.address)
        term = await_leadership(node, standing.term, timeout, RealSystem())
    sys.stdout.write(f"Pod {pod} leads {store} now, in term {term}, in place of {leaders[0]}.\n")
