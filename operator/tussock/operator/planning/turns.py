"""The order in which an upgrade of the operator changes stores, and jobs: a few at a time.

A new operator may bring other images or another configuration for every store and every job of the cluster. Changes by
users happen at once; changes by the operator alone wait until it is the store's or the job's turn.

A store's turn is for its meta nodes, the server of its managed object store, and its compactors. These follow meta
nodes that have changed, and wait for a turn only if an upgrade changes no meta nodes of their store. Jobs have turns
among themselves (`compute/turns.py`), and a job takes part once the nodes of its store have changed.

Healthy ones come first, in the order of their names. A store that fails its turn stops those of all others, which say
which one it was: an image that does not work has to stop at the first store. That is a store with a workload that the
upgrade has changed (`UPGRADED`), and that has not served since, and makes no progress any more or has a problem.
Nothing else is remembered, so the upgrade goes on by itself once that is over, and an operator that follows knows the
same. What comes next, such as a better image, is tried on that store first.

A job or a service that fails holds up no other: its own status says what is wrong. Kubernetes gives a Deployment five
minutes to make progress, and the operator a StatefulSet and a driver as long.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from tussock.operator.manifests.labels import SPEC_ANNOTATION
from tussock.operator.manifests.minio import SECRET_VERSION
from tussock.operator.planning.words.comparison import APPLIED, mark
from tussock.operator.planning.words.conditions import Reason, Verdict
from tussock.operator.planning.words.model import Annotate, Apply, Manifest, Ref, ref_of, seconds_since, workload_in

__all__ = [
    "NO_WAIT",
    "PROGRESS_SECONDS",
    "TURN_SECONDS",
    "UPGRADED",
    "Standing",
    "UpgradeTurn",
    "begins",
    "is_asked_by_operator",
    "is_changing",
    "is_pending",
    "is_restarting",
    "is_stalled",
    "is_upgraded",
    "passes",
    "predecessors",
    "turn_message",
    "with_turn",
    "without_nodes",
]

UPGRADED = "tussock.dev/upgraded"
"""Beside `SPEC_ANNOTATION`: the digest of a workload's manifest (`APPLIED`), if an upgrade of the operator asks for it.
It goes as soon as the workload serves, so that a store that falls ill later has failed no upgrade, and says nothing any
more when a user has changed the workload."""
TURN_SECONDS = 3.0
"""The interval of looks while a store waits for others: no event of theirs wakes this one."""
STOPPED_SECONDS = 15.0
"""The same while the upgrade is stopped, which may last for days."""
PROGRESS_SECONDS = 300.0
"""A StatefulSet or a driver that is not ready for this long makes no progress; Kubernetes sets no such time for it."""


class Standing(NamedTuple):
    """How far a store or a job is with an upgrade."""

    name: str
    """With its namespace."""
    changing: bool
    """A change is in progress."""
    well: bool
    """It has no problems."""
    failed_before: bool = False
    """It has failed the upgrade before: the next one begins here, where nothing gets worse."""

    @property
    def rank(self) -> tuple[int, str]:
        """Its place in the order."""
        return (0 if self.failed_before else 1 if self.well else 2, self.name)


class UpgradeTurn(NamedTuple):
    """What a workload waits for, if the operator alone asks for a change of it."""

    is_asked: bool = False
    """The operator alone asks for a change."""
    before: tuple[str, ...] = ()
    """The stores that come first."""
    failed: str = ""
    """The store that has failed the upgrade, and its reason; empty if the upgrade is not stopped."""

    @property
    def waits(self) -> bool:
        """Whether the change may not begin."""
        return bool(self.before or self.failed)

    @property
    def again_seconds(self) -> float:
        """The interval of looks while it waits."""
        return STOPPED_SECONDS if self.failed else TURN_SECONDS


NO_WAIT = UpgradeTurn()
"""The operator asks for nothing, or only with the users."""


def predecessors(
    mine: str, standings: Sequence[Standing], has_to_change: Callable[[str], bool], parallel: int
) -> tuple[str, ...]:
    """The stores, or the jobs, to change before `mine`; none if it is its turn. At most `parallel` change at a time.

    `has_to_change` says of a name whether a change is due and has not begun. It is costly, and all that wait ask every
    few seconds, so it is asked only of what comes before `mine`, the nearest first, and until the answer is known. So
    of many predecessors this returns a part, but at least two.
    """
    changing = sorted(one.name for one in standings if one.changing)
    if mine in changing:
        # It may be in the middle of its turn, or an autoscaler changes its compactors meanwhile: the bound holds for
        # both, and the first of those that change never waits.
        first = [name for name in changing if name < mine]
        return tuple(first) if len(first) >= parallel else ()
    own = [one for one in standings if one.name == mine]
    rank = own[0].rank if own else Standing(mine, changing=False, well=False).rank
    earlier = sorted(one.rank for one in standings if not one.changing)
    ahead: list[str] = []
    for _, name in [place for place in reversed(earlier) if place < rank]:
        if len(changing) + len(ahead) >= max(parallel, 2):
            break
        if has_to_change(name):
            ahead.insert(0, name)
    return (*changing, *ahead) if len(changing) + len(ahead) >= parallel else ()


def turn_message(what: str, kind: str, names: Sequence[str]) -> str:
    """What waits for the turns of other stores or jobs; `kind` is theirs.

    Names a single one; a list of many would change after each, and each change is a write of the status.
    """
    after = f"{kind} {names[0]}" if len(names) == 1 else f"other {_PLURALS[kind]}"
    return f"An upgrade of the operator changes {what} of {after}."


_PLURALS = {"StateStore": "stores", "Compute": "jobs"}


def with_turn(verdict: Verdict, turn: UpgradeTurn, what: str) -> Verdict:
    """The verdict on something that serves, with what a change of it waits for; others have worse to tell."""
    if verdict.reason is not Reason.READY or not turn.waits:
        return verdict
    if not turn.failed:
        return verdict._replace(message=f"{verdict.message} {turn_message(what, 'StateStore', turn.before)}")
    told = (
        f"{verdict.message} The upgrade of the operator is stopped, since StateStore {turn.failed} has failed it; the "
        "status of that one says more. It goes on by itself once that store serves, names an image that works in its "
        "spec, is paused or deleted, or when the operator gets another image, which is tried there first."
    )
    return verdict._replace(reason=Reason.UPGRADE_STOPPED, message=told)


def begins(applied: Sequence[Apply], wanted: Sequence[Manifest], turn: UpgradeTurn) -> tuple[Annotate, ...]:
    """The note that an upgrade changes a workload, if it does; to be written before that, so that it is never missed.

    Not on a Deployment, whose generation grows with its annotations.
    """
    if not turn.is_asked or turn.waits:
        return ()
    found = [one.manifest for one in applied if one.manifest["kind"] in ("Deployment", "StatefulSet")]
    noted = [one for one in wanted if SPEC_ANNOTATION in one["metadata"].get("annotations", ())]
    return tuple(
        Annotate(ref_of(noted[0]), {UPGRADED: one["metadata"]["annotations"][APPLIED]}) for one in found if noted
    )


def passes(found: Manifest | None, note: Manifest | None, *, serves: bool) -> tuple[Annotate, ...]:
    """The end of that note, on `note`, if the workload serves."""
    return (
        (Annotate(ref_of(note), {UPGRADED: None}),) if note is not None and serves and is_upgraded(found, note) else ()
    )


def is_upgraded(found: Manifest | None, note: Manifest | None) -> bool:
    """Whether a workload is as an upgrade of the operator has changed it, and has not served since."""
    upgraded = _annotation(note, UPGRADED)
    return bool(upgraded) and upgraded == _annotation(found, APPLIED)


def _annotation(body: Manifest | None, name: str) -> str:
    return str((((body or {}).get("metadata") or {}).get("annotations") or {}).get(name, ""))


def is_asked_by_operator(
    wanted: Sequence[Manifest], children: Mapping[Ref, Manifest], *, after_metas: bool = False
) -> bool:
    """Whether a running workload would change although no spec and no secret has changed.

    `wanted` has the workload, and what its users decide (`SPEC_ANNOTATION`) on it or on an object that is applied with
    it. Not if a client has edited the workload: the operator repairs that at once. With `after_metas` compactors count
    whose meta nodes have changed before, which stands after the slash.
    """
    [dated] = [one for one in wanted if SPEC_ANNOTATION in one["metadata"].get("annotations", ())]
    workload = workload_in(wanted)
    held, found = children.get(ref_of(dated)), children.get(ref_of(workload))
    if held is None or found is None or not is_pending(workload, found):
        return False
    if _secret_version(workload) != _secret_version(found):
        return False
    spec = dated["metadata"]["annotations"][SPEC_ANNOTATION]
    # Without the annotation it is from an earlier operator, so the change comes with an upgrade.
    before = (held["metadata"].get("annotations") or {}).get(SPEC_ANNOTATION, spec)
    return bool(before.partition("/")[0] == spec.partition("/")[0] if after_metas else before == spec)


def without_nodes(wanted: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """What is applied while nodes wait: all but their Deployment, its configuration, and what it was made from."""
    return tuple(one for one in wanted if one["kind"] not in ("ConfigMap", "Deployment", "PodDisruptionBudget"))


def _secret_version(workload: Manifest) -> str:
    """The version of the secret with which a server of an object store was started; empty for other workloads."""
    template = (workload.get("spec") or {}).get("template") or {}
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(SECRET_VERSION, ""))


def is_pending(wanted: Manifest, found: Manifest | None) -> bool:
    """Whether an existing workload was made from something else than the wanted one."""
    if found is None:
        return False
    digest = mark(wanted)["metadata"]["annotations"][APPLIED]
    return bool((found["metadata"].get("annotations") or {}).get(APPLIED) != digest)


def is_changing(found: Manifest | None) -> bool:
    """Whether Kubernetes is replacing the pods of a Deployment, and makes progress."""
    status = (found or {}).get("status") or {}
    if found is None or "observedGeneration" not in status:
        return False
    wanted, updated = found["spec"].get("replicas", 1), status.get("updatedReplicas", 0)
    behind = status["observedGeneration"] < found["metadata"].get("generation", 0)
    return behind or (not is_stalled(found) and (updated < wanted or status.get("replicas", 0) > updated))


def is_stalled(found: Manifest | None) -> bool:
    """Whether Kubernetes says of a Deployment that its rollout makes no progress any more."""
    held = ((found or {}).get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Progressing" and one.get("status") == "False" for one in held)


def is_restarting(found: Manifest | None, owner: Mapping[str, Any], now: datetime) -> bool:
    """Whether Kubernetes is replacing the pods of a StatefulSet, and makes progress; `owner` is its owner's status.

    A server that is not ready yet counts: unlike a Deployment, a StatefulSet has no old one that serves meanwhile.
    """
    status = (found or {}).get("status") or {}
    if found is None or "observedGeneration" not in status:
        return False
    held = owner.get("conditions") or ()
    since = [one.get("lastTransitionTime") for one in held if one["type"] == "Progressing" and one["status"] == "True"]
    if any(seconds_since(began, now) > PROGRESS_SECONDS for began in since):
        return False
    wanted = found["spec"].get("replicas", 1)
    behind = status["observedGeneration"] < found["metadata"].get("generation", 0)
    return behind or min(status.get("updatedReplicas", 0), status.get("readyReplicas", 0)) < wanted
