"""How long pods stay on a node that is lost.

Kubernetes taints a node that has been silent for a time, and deletes pods that do not say for how long they tolerate
that 300 s later (its admission `DefaultTolerationSeconds`). Here that is far too long: what our pods hold is in the
bucket, and a second driver or leader is safe, since the store refuses the first one's commits once the second has
begun. `docs/operator/node-loss.md` has the sum.
"""

from collections.abc import Mapping
from typing import Any

from tussock.operator.manifests.labels import Manifest

__all__ = ["TOLERATION_SECONDS", "leave_lost_nodes"]

TOLERATION_SECONDS = 5
"""For a node that comes back at once, as after a restart of its kubelet."""
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def leave_lost_nodes(spec: Mapping[str, Any]) -> Manifest:
    """The spec of a pod that leaves a lost node, unless its tolerations say when it does; they are the user's."""
    given = spec.get("tolerations") or []
    if not isinstance(given, list):
        return dict(spec)  # the API server says what is wrong with it
    ours = [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
        for taint in _TAINTS
        if not any(_tolerates(toleration, taint) for toleration in given)
    ]
    return {**spec, "tolerations": [*given, *ours]}


def _tolerates(toleration: Any, taint: str) -> bool:
    """As in Kubernetes' own admission, which would add its 300 s where this is false."""
    if not isinstance(toleration, Mapping):
        return False
    return (toleration.get("key") or taint) == taint and (toleration.get("effect") or "NoExecute") == "NoExecute"
