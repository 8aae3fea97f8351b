"""Remembers what the API server refused, so that the operator does not send the same request again and again.

A refusal lasts until a person changes something: rights, a quota, a foreign object of that name. Meanwhile passes run
for many reasons, and a changed status is one of them. So the pause belongs to the action and not to the pass: a refused
action waits until its time has come, however often the resource is looked at. An action with new content, such as from
a corrected spec, is tried at once.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tussock.operator.cluster.errors import ApiRefused, NameInUse, TemplateFieldsUnknown
from tussock.operator.cluster.seen import Key
from tussock.operator.planning.words.comparison import digest
from tussock.operator.planning.words.conditions import Reason
from tussock.operator.planning.words.model import Action, Annotate, Apply, Delete, Label, Work, ref_of

__all__ = ["REFUSED_SECONDS", "Refusals", "advice", "refusal_summary"]

_TOLD_MAX = 3
"""The number of refusals in a condition's message; most often they are all the same."""

REFUSED_SECONDS = (2.0, 60.0)
"""Pause after a first refusal, and at most: nothing announces that rights were given or a quota raised."""


class _Refusal(NamedTuple):
    content: str
    error: ApiRefused
    times: int
    until: float


class Refusals:
    """Refused actions by resource; its size is the number of actions that are refused now."""

    def __init__(self) -> None:
        self._held: dict[Key, dict[str, _Refusal]] = {}

    def refusal_of(self, key: Key, action: Action, now: float) -> ApiRefused | None:
        """Why this action is not worth a request yet; `None` to try it. `now` is in seconds of any clock."""
        found = self._held.get(key, {}).get(_name(action))
        if found is None or found.content != _content(action) or now >= found.until:
            return None
        return found.error

    def note(self, key: Key, action: Action, error: ApiRefused, now: float) -> None:
        """Note that the server has just refused this action."""
        held = self._held.setdefault(key, {})
        before = held.get(_name(action))
        times = before.times + 1 if before is not None and before.content == _content(action) else 1
        first, most = REFUSED_SECONDS
        # Above 2 ** 10 every pause is at its limit, and the power would overflow some day.
        pause = min(first * 2.0 ** min(times - 1, 10), most)
        held[_name(action)] = _Refusal(_content(action), error, times, now + pause)

    def keep(self, key: Key, actions: tuple[Action, ...]) -> None:
        """Forget actions that are done or no longer wanted: `actions` are those that were refused now."""
        names = {_name(action) for action in actions}
        left = {name: refusal for name, refusal in self._held.pop(key, {}).items() if name in names}
        if left:
            self._held[key] = left

    def wait_seconds(self, key: Key, now: float) -> float | None:
        """The seconds until the first refused action of a resource is due again; `None` without one."""
        found = self._held.get(key)
        return max(0.0, min(refusal.until for refusal in found.values()) - now) if found else None


def refusal_summary(errors: Sequence[ApiRefused]) -> tuple[Reason, str]:
    """The reason of some refusals, and a message: foreign objects first, which the operator itself refuses."""
    taken = [error for error in errors if isinstance(error, NameInUse)]
    if len(taken) == len(errors) and all(error.passes for error in taken):
        names = ", ".join(f"{error.ref.kind} {error.ref.name}" for error in taken)
        return (
            Reason.RECONCILING,
            f"Waiting until Kubernetes has deleted what a former resource of this name owned: {names}.",
        )
    others = [error for error in errors if not isinstance(error, NameInUse)]
    parts = [str(error) for error in taken[:_TOLD_MAX]]
    if others[: _TOLD_MAX - len(parts)]:
        said = [f"{error}. {advice(error)}".replace(".. ", ". ") for error in others[: _TOLD_MAX - len(parts)]]
        parts.append(f"The API server refused a request: {'; '.join(said)}")
    more = f" Further refusals: {len(errors) - _TOLD_MAX}." if len(errors) > _TOLD_MAX else ""
    return Reason.NAME_IN_USE if taken else Reason.APPLY_REFUSED, f"{' '.join(parts)}{more}"


def advice(error: ApiRefused) -> str:
    """Advice for a person about a refusal, by its kind."""
    said = str(error).lower()
    if isinstance(error, TemplateFieldsUnknown):
        return "All else of the pod template is applied."
    if "exceeded quota" in said:
        return "Raise the ResourceQuota of the namespace, or free some of it."
    if "being terminated" in said:
        return "The namespace is being deleted, so nothing can be created in it."
    if "webhook" in said and "failed" in said and "denied the request" not in said:
        return "A webhook of the cluster does not work: repair it, or remove its configuration."
    if "admission webhook" in said or "violates podsecurity" in said:
        return "A policy of the cluster does not allow it: change the spec to comply, or change the policy."
    if "can be resized" in said:
        return "Set allowVolumeExpansion in the StorageClass of the claim, or make the volume larger by other means."
    if error.status == 403 and " cannot " in said:
        return "Add the missing right to the operator's role."
    return "Change what the message names: the spec, or an object that another client has created or edited."


def _name(action: Action) -> str:
    match action:
        case Apply(manifest):
            return f"apply {'/'.join(ref_of(manifest))}"
        case Delete(ref) | Annotate(ref, _) | Label(ref, _):
            return f"{type(action).__name__} {'/'.join(ref)}"
        case Work(name, _):
            return f"work {name}"
    return type(action).__name__


def _content(action: Action) -> str:
    match action:
        case Apply(manifest):
            return digest(manifest)
        case Annotate(_, values) | Label(_, values):
            return digest(values)
        case Work(_, arguments):
            return digest(arguments)
    return ""
