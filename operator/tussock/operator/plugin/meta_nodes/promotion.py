"""Lets a certain replica of a store's meta service lead (`docs/meta-protocol.md`)."""

import msgspec

from tussock.meta.rpc import meta_pb2 as pb
from tussock.operator.manifests.labels import COMPONENT_LABEL, MANAGED_BY, MANAGED_BY_LABEL, STORE_LABEL
from tussock.operator.manifests.meta_config import GRPC_PORT
from tussock.operator.planning.words.model import Manifest
from tussock.operator.plugin.kubectl import KubectlFailed
from tussock.operator.plugin.meta_nodes.access import AskedMeta
from tussock.operator.plugin.options import status_of
from tussock.statestore.base.system import System
from tussock.statestore.errors import MetaUnavailable, WaitTimeout

__all__ = ["Leading", "address_of", "await_leadership", "check_replica", "hand_over", "standing_of"]

PAUSE_SECONDS = 0.3


class Leading(msgspec.Struct):
    """What a replica says of itself and of the leader."""

    role: str
    address: str
    leader: str
    term: int = 0


class _Status(msgspec.Struct):
    replica: Leading


def check_replica(pod: Manifest, store: str) -> None:
    """`KubectlFailed` unless the pod is a ready meta node of that store that the operator has made."""
    name, labels = pod["metadata"]["name"], pod["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY_LABEL) != MANAGED_BY or labels.get(STORE_LABEL) != store:
        raise KubectlFailed(f"pod {name} is not of StateStore {store}; see kubectl tussock logs {store} -c meta")
    if labels.get(COMPONENT_LABEL) != "meta":
        raise KubectlFailed(f"pod {name} is no meta node of StateStore {store}, but of its {labels[COMPONENT_LABEL]}")
    held = {one["type"]: one["status"] for one in status_of(pod).get("conditions") or ()}
    if held.get("Ready") != "True" or pod["metadata"].get("deletionTimestamp"):
        raise KubectlFailed(f"pod {name} is not ready, so that it cannot lead; nothing was changed")


def address_of(pod: Manifest) -> str:
    """The address that a meta node advertises."""
    return f"{status_of(pod).get('podIP', '')}:{GRPC_PORT}"


def standing_of(node: AskedMeta) -> Leading:
    """What a replica says; raises its error."""
    answer = node.call("GetStatus", pb.GetStatusRequest())
    assert isinstance(answer, pb.GetStatusResponse)
    return msgspec.json.decode(answer.status, type=_Status).replica


def hand_over(leader: AskedMeta, address: str) -> None:
    """Ask the leader to let the replica at `address` lead; raises its error, such as `InvalidOption` or `NotLeader`."""
    try:
        leader.call("HandOver", pb.HandOverRequest(address=address))
    except MetaUnavailable as error:
        if "UNIMPLEMENTED" not in str(error):
            raise
        raise KubectlFailed(
            "the leader is of a release that cannot hand over; upgrade the meta nodes, or delete the leader's pod to "
            "have any other one lead"
        ) from error


def await_leadership(node: AskedMeta, former: int, seconds: float, system: System) -> int:
    """Wait until a replica leads, after the term `former`; returns its term.

    `KubectlFailed` if another one leads, `WaitTimeout` if none does.
    """
    deadline = system.monotonic() + seconds
    while True:
        found = standing_of(node)
        if found.role == "leader":
            return found.term
        if found.term > former and found.leader not in ("", found.address):
            raise KubectlFailed(
                f"the replica at {found.leader} leads now, and not the one at {found.address}: it may have lost its "
                "bucket in that moment, or a replica is of an earlier release; ask again"
            )
        if system.monotonic() > deadline:
            raise WaitTimeout(
                f"the replica at {found.address} does not lead after {seconds:g} s; "
                f"{f'{found.leader} does' if found.leader else 'no leader is known'}. Its log says why"
            )
        system.sleep(PAUSE_SECONDS)
