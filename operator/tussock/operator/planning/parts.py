"""The parts of a store: its `Meta` and `Compactor` objects, and how it is by theirs."""

from collections.abc import Mapping, Sequence

from tussock.operator.manifests.meta import meta_address
from tussock.operator.planning.words.approvals import joined
from tussock.operator.planning.words.conditions import (
    Reason,
    Verdict,
    is_current,
    is_ready,
    known_reason,
    problem_verdict,
    progress_verdict,
    ready_verdict,
)
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.common import store_place
from tussock.operator.resources.store import StoreResource

__all__ = ["endpoint_of", "images_that_wait", "numbers_of", "resources_of_store", "verdict_of_parts"]


def resources_of_store(others: Mapping[Ref, Manifest], kind: str, store: StoreResource) -> list[Manifest]:
    """All resources of a kind that refer to the store, by name. Others may name one of its name elsewhere."""
    found = [body for ref, body in sorted(others.items(), key=lambda item: item[0]) if ref.kind == kind]
    return [body for body in found if store_place(body) == (store.namespace, store.name)]


def verdict_of_parts(
    store: StoreResource, metas: Sequence[Manifest], compactors: Sequence[Manifest], *, serving: bool
) -> Verdict:
    """The verdict on a store without obstacles: that of its first part that is not ready."""
    if not metas:
        told = "There is no Meta of this store yet; create one, or set spec.meta."
        return progress_verdict(Reason.WAITING_FOR_META, told)
    for body in [*metas, *compactors]:
        kind, name = body["kind"], body["metadata"]["name"]
        held = {found["type"]: found for found in (body.get("status") or {}).get("conditions") or ()}
        if not held:
            return progress_verdict(
                _waiting_reason(kind), f"The operator is checking {kind} {name} for the first time.", serving=serving
            )
        if not is_current(body) and held["Degraded"]["status"] != "True":
            told = f"{kind} {name} has changed; the operator is checking it."
            return progress_verdict(_waiting_reason(kind), told, serving=serving)
        told = f"{kind} {name}: {held['Ready']['message']}"
        if held["Degraded"]["status"] == "True":
            return problem_verdict(known_reason(held["Ready"]["reason"], _waiting_reason(kind)), told, serving=serving)
        if not is_ready(body) or held["Progressing"]["status"] == "True":
            rolling = held["Ready"]["reason"] in (Reason.ROLLING_OUT, Reason.UNSCHEDULABLE, Reason.WAITING_FOR_ADDRESS)
            reason = Reason(held["Ready"]["reason"]) if rolling else _waiting_reason(kind)
            return progress_verdict(reason, told, serving=serving)
    serves = ready_verdict(f"The store serves at {endpoint_of(store, metas)}.")
    for body in [*metas, *compactors]:
        held = {found["type"]: found for found in body["status"]["conditions"]}
        if held["Ready"]["reason"] == Reason.UPGRADE_STOPPED:
            told = f"{serves.message} {body['kind']} {body['metadata']['name']}: {held['Ready']['message']}"
            return serves._replace(reason=Reason.UPGRADE_STOPPED, message=told)
    return serves


def images_that_wait(bodies: Sequence[Manifest], of_server: str) -> str:
    """The images that the parts of a store would change to, if somebody approved of them."""
    return joined([of_server, *(str((body.get("status") or {}).get("pendingImage", "")) for body in bodies)])


def _waiting_reason(kind: str) -> Reason:
    return Reason.WAITING_FOR_META if kind == "Meta" else Reason.WAITING_FOR_COMPACTORS


def endpoint_of(store: StoreResource, metas: Sequence[Manifest]) -> str:
    """The address of the meta nodes, for clients."""
    return f"tussock://{','.join(meta_address(body['metadata']['name'], store.namespace) for body in metas)}"


def numbers_of(bodies: Sequence[Manifest]) -> dict[str, int]:
    """The pods of all these, and how many of them are ready."""
    statuses = [body.get("status") or {} for body in bodies]
    return {name: sum(found.get(name, 0) for found in statuses) for name in ("replicas", "readyReplicas")}
