"""Which pod of a `Meta` is which replica, and which one leads, for the Services that lead to one of them.

One pod at a time has each number.

Pods of a Deployment are alike, and the next one has another name. So the operator numbers them by a label: a pod keeps
its number as long as it lives, and the number of one that ends goes to the oldest pod without one. During a rollout
there is one pod more than numbers; it gets that of the next pod that goes.
"""

from collections.abc import Sequence

from tussock.operator.manifests.outside.console import LEADER_LABEL
from tussock.operator.manifests.outside.services import REPLICA_LABEL
from tussock.operator.planning.words.model import Label, Manifest, ref_of

__all__ = ["marked_leader", "numbered"]


def numbered(pods: Sequence[Manifest], replicas: int) -> list[Label]:
    """The labels to set and to take away, so that each number below `replicas` has one pod; 0 for no numbers at all."""
    living = sorted(filter(_lives, pods), key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), _name(pod)))
    holders: dict[str, str] = {}
    for pod in living:
        if (number := _number(pod)) in _numbers(replicas) and number not in holders:
            holders[number] = _name(pod)
    named = {name: number for number, name in holders.items()}
    free = [number for number in _numbers(replicas) if number not in holders]
    for pod in living:
        if free and _name(pod) not in named:
            named[_name(pod)] = free.pop(0)
    # One that ends keeps its number until it is gone, or calls in flight would lose their way; no new one comes to it.
    return [
        Label(ref_of(pod), {REPLICA_LABEL: named.get(_name(pod))})
        for pod in living
        if _number(pod) != (named.get(_name(pod)) or "")
    ]


def marked_leader(pods: Sequence[Manifest], leader_ip: str) -> list[Label]:
    """The labels to set and to take away, so that the pod with that IP alone is marked; none is for an empty one."""
    marked = {_name(pod) for pod in pods if leader_ip and (pod.get("status") or {}).get("podIP") == leader_ip}
    return [
        Label(ref_of(pod), {LEADER_LABEL: "true" if _name(pod) in marked else None})
        for pod in pods
        if (LEADER_LABEL in (pod["metadata"].get("labels") or {})) != (_name(pod) in marked)
    ]


def _numbers(replicas: int) -> list[str]:
    return [str(number) for number in range(replicas)]


def _number(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REPLICA_LABEL, ""))


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])


def _lives(pod: Manifest) -> bool:
    ended = (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    return not ended and not pod["metadata"].get("deletionTimestamp")
