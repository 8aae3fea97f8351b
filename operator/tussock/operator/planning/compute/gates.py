"""What jobs and services wait for: the store, its meta nodes and compactors; and a job for its own writer id."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tussock.operator.planning.words.components import (
    match_message,
    named,
    no_meta_message,
    store_wait_verdict,
)
from tussock.operator.planning.words.conditions import Reason, Verdict, is_serving, problem_verdict, progress_verdict
from tussock.operator.planning.words.model import Manifest, Ref
from tussock.operator.resources.common import store_place
from tussock.operator.resources.compute import Compute

__all__ = ["Gates", "gates_of", "stores_metas", "writer_conflict"]


class Gates(NamedTuple):
    """What keeps a driver from starting, or from giving way to another; `None`: nothing."""

    first: Verdict | None
    """For a first start, and for a change, which meta nodes and compactors have to make first."""
    again: Verdict | None
    """For another start of the same: it only needs meta nodes that serve. Obstacles to changes of the store
    itself, such as a bucket that the operator cannot reach or an object that the server refused, do not concern a job
    whose nodes do their work; and a stream can continue for a while without compactors."""
    turn: str = ""
    """What a running driver waits for before an upgrade of the operator stops it; empty: nothing (`turns.py`)."""


def gates_of(compute: Compute, others: Mapping[Ref, Manifest], settled: Mapping[Ref, bool]) -> Gates:
    """The gates of a job; `settled` has the store's Metas and Compactors, and whether they match their specs now."""
    name = compute.spec.store_ref.name
    body = others.get(Ref("StateStore", name))
    waits = store_wait_verdict(body, name)
    metas = stores_metas(compute, others)
    if body is None or not metas:
        missing = waits or progress_verdict(Reason.WAITING_FOR_META, no_meta_message(body, name))
        return Gates(missing, missing)
    serving = [meta for meta in metas if is_serving(others[Ref("Meta", meta)])]
    one = f"Meta {metas[0]}" if len(metas) == 1 else f"one of the Metas {named(metas)}"
    again = None if serving else progress_verdict(Reason.WAITING_FOR_META, f"Waiting until {one} serves.")
    if waits is not None:
        return Gates(waits, again)
    for kind, reason in (("Meta", Reason.WAITING_FOR_META), ("Compactor", Reason.WAITING_FOR_COMPACTORS)):
        left = sorted(ref.name for ref, done in settled.items() if ref.kind == kind and not done)
        if left:
            return Gates(again or progress_verdict(reason, match_message(kind, left)), again)
    return Gates(again, again)


def stores_metas(compute: Compute, others: Mapping[Ref, Manifest]) -> list[str]:
    """The names of the store's Metas, sorted."""
    place = _place(compute)
    return sorted(ref.name for ref, body in others.items() if ref.kind == "Meta" and store_place(body) == place)


def writer_conflict(
    compute: Compute, others: Mapping[Ref, Manifest], elsewhere: Sequence[Manifest] = ()
) -> Verdict | None:
    """The verdict if an older job of the store has the same writer id; the name decides between two of the same age.

    Two drivers under one id would each take the other's batches for their own, and lose rows. `elsewhere` are the
    store's jobs in other namespaces.
    """
    mine, place = (compute.metadata.creation_timestamp, compute.name, compute.namespace), _place(compute)
    near = [body for ref, body in sorted(others.items()) if ref.kind == "Compute" and store_place(body) == place]
    for body in [*near, *elsewhere]:
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        if body["spec"].get("service") is not None:
            continue  # its application commits under its own name
        theirs = (body["metadata"].get("creationTimestamp") or "", name, namespace)
        if (body["spec"].get("writerId") or name) == compute.writer_id and theirs < mine:
            told = name if namespace == compute.namespace else f"{namespace}/{name}"
            return problem_verdict(
                Reason.WRITER_ID_IN_USE,
                f"Compute {told} commits to StateStore {compute.spec.store_ref.name} as {compute.writer_id!r}, "
                "too. Delete one of the two, or create this one again with another writerId.",
            )
    return None


def _place(compute: Compute) -> tuple[str, str]:
    return compute.store_namespace, compute.spec.store_ref.name
