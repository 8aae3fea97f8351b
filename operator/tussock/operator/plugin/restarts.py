"""A rolling restart in the operator's own way: an annotation asks for it, and the operator replaces the pods.

So pods are replaced as after any change of a spec: meta nodes first, the leader's last, compactors after them, and jobs
when both serve; a driver ends its batch. The user needs no right on pods, and nothing is touched that the operator does
not manage.
"""

from collections.abc import Sequence
from typing import Any

from tussock.operator.manifests.compute.pods import ROLE_LABEL
from tussock.operator.manifests.labels import OWNER_KIND_LABEL, OWNER_LABEL, RESTARTED_AT, STORE_LABEL
from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.kubectl import Kubectl, KubectlFailed
from tussock.operator.plugin.options import parts_of, status_of
from tussock.operator.resources.common import GROUP
from tussock.statestore.base.system import System

__all__ = ["ask", "is_restarted", "refuse", "wait"]

PAUSE_SECONDS = 1.0
PLURALS = {"Meta": "metas", "Compactor": "compactors", "Compute": "computes"}
_OF_OTHERS = "NameInUse"


def refuse(store: Manifest, parts: Sequence[Manifest]) -> None:
    """`KubectlFailed` if the operator would not restart these parts of the store, and why."""
    name = store["metadata"]["name"]
    if store["metadata"].get("deletionTimestamp"):
        raise KubectlFailed(f"StateStore {name} is being deleted: nothing of it is restarted")
    if store["spec"].get("paused"):
        raise KubectlFailed(
            f"StateStore {name} is paused: the operator changes nothing of it until spec.paused is false"
        )
    for part in parts:
        ready = _condition(part, "Ready")
        if ready.get("reason") == _OF_OTHERS:
            raise KubectlFailed(f"the pods of {_title(part)} are not Tussock's: {ready.get('message', '')}")


def ask(kubectl: Kubectl, parts: Sequence[Manifest], stamp: str) -> None:
    """Ask the operator for the restart; `KubectlFailed` if one of the parts may not be changed, or is gone."""
    for part in parts:
        kubectl.patch(
            f"{PLURALS[part['kind']]}.{GROUP}",
            part["metadata"]["name"],
            {"metadata": {"annotations": {RESTARTED_AT: stamp}}},
        )


def wait(kubectl: Kubectl, store: str, parts: Sequence[Manifest], stamp: str, seconds: float, system: System) -> None:
    """Return when all pods of the parts are new and serve; `KubectlFailed` if that takes longer than `seconds`.

    Parts and pods are asked for each second.
    """
    asked = {_key(part) for part in parts}
    deadline = system.monotonic() + seconds
    while True:
        pods = kubectl.objects("pods", labels=f"{STORE_LABEL}={store}")
        found = [part for part in parts_of(kubectl, store) if _key(part) in asked]
        missing = [part for part in found if not is_restarted(part, _pods_of(part, pods), stamp)]
        if not missing:
            return
        if system.monotonic() > deadline:
            told = "; ".join(f"{_title(part)}: {_condition(part, 'Ready').get('message', _SILENT)}" for part in missing)
            raise KubectlFailed(
                f"not all pods are new after {seconds:g} s, and the restart goes on if an operator runs: {told}"
            )
        system.sleep(PAUSE_SECONDS)


_SILENT = "no operator has reported on it yet"


def is_restarted(part: Manifest, pods: Sequence[Manifest], stamp: str) -> bool:
    """Whether the pods of a Meta, a Compactor or a Compute are all of that restart, and it is at rest. Pure.

    Pods that have ended by themselves are not started again by a restart, nor are runs that wait for their time.
    """
    living = [pod for pod in pods if status_of(pod).get("phase") not in ("Succeeded", "Failed")]
    if any((pod["metadata"].get("annotations") or {}).get(RESTARTED_AT) != stamp for pod in living):
        return False
    return _condition(part, "Progressing").get("status") == "False"


def _pods_of(part: Manifest, pods: Sequence[Manifest]) -> list[Manifest]:
    wanted = {OWNER_KIND_LABEL: part["kind"], OWNER_LABEL: part["metadata"]["name"]}
    labelled = [(pod, pod["metadata"].get("labels") or {}) for pod in pods]
    # The pod that tries an image runs nothing of Tussock's.
    return [pod for pod, labels in labelled if wanted.items() <= labels.items() and labels.get(ROLE_LABEL) != "image"]


def _condition(part: Manifest, type_: str) -> dict[str, Any]:
    held = status_of(part).get("conditions") or ()
    return next((found for found in held if found["type"] == type_), {})


def _key(part: Manifest) -> tuple[str, str]:
    return part["kind"], part["metadata"]["uid"]


def _title(part: Manifest) -> str:
    return f"{part['kind']} {part['metadata']['name']}"
