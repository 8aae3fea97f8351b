"""The pause of an action that the API server refused, and the way out that users are told."""

import pytest

from tussock.operator.cluster.errors import ApiRefused
from tussock.operator.cluster.seen import Key
from tussock.operator.handlers.passes.refusals import Refusals, advice
from tussock.operator.planning.words.model import Apply, Delete, Ref, Work

KEY, OTHER = Key("Meta", "n", "m"), Key("Meta", "n", "other")
ERROR = ApiRefused("no", 403)


def service(port: int = 1) -> Apply:
    return Apply({"kind": "Service", "metadata": {"name": "x"}, "spec": {"port": port}})


def test_the_pauses_of_a_refused_action_double() -> None:
    """Passes in between make no request; the pause belongs to the action, not to the pass."""
    refusals, now, pauses = Refusals(), 0.0, []
    for _ in range(8):
        assert refusals.refusal_of(KEY, service(), now) is None, "it is tried"
        refusals.note(KEY, service(), ERROR, now)
        refusals.keep(KEY, (service(),))
        pause = refusals.wait_seconds(KEY, now)
        assert pause is not None
        assert refusals.refusal_of(KEY, service(), now + pause - 0.1) is ERROR
        pauses.append(pause)
        now += pause
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]


def test_a_changed_action_is_tried_at_once_with_a_new_pause() -> None:
    """A user may have corrected the spec; the same object of another resource is another action."""
    refusals = Refusals()
    for _ in range(3):
        refusals.note(KEY, service(), ERROR, 0)
    assert refusals.refusal_of(KEY, service(2), 0) is None
    assert refusals.refusal_of(OTHER, service(), 0) is None
    refusals.note(KEY, service(2), ERROR, 0)
    assert refusals.wait_seconds(KEY, 0) == 2


def test_an_action_that_is_no_longer_planned_is_forgotten() -> None:
    refusals = Refusals()
    actions = (service(), Delete(Ref("Pod", "p")), Work("w", {"a": 1}))
    for action in actions:
        refusals.note(KEY, action, ERROR, 0)
    refusals.keep(KEY, actions[1:])
    assert refusals.refusal_of(KEY, actions[0], 0) is None
    assert [refusals.refusal_of(KEY, action, 0) for action in actions[1:]] == [ERROR, ERROR]
    refusals.keep(KEY, ())
    assert refusals.wait_seconds(KEY, 0) is None


ADVICE = {
    'services "x" is forbidden: exceeded quota: small, requested: services=1': "ResourceQuota",
    'services is forbidden: User "op" cannot create resource "services" in API group ""': "operator's role",
    "namespaces is forbidden: unable to create new content in namespace x because it is being terminated": "deleted",
    'Internal error occurred: failed calling webhook "w.example": connection refused': "repair it",
    'conversion webhook for tussock.dev/v1, Kind=Meta failed: Post "https://x": timeout': "repair it",
    'admission webhook "policy.example" denied the request': "policy",
    'pods "x" is forbidden: violates PodSecurity "restricted:latest"': "policy",
    "only dynamically provisioned pvc can be resized and the storageclass must support resize": "allowVolumeExpansion",
    "Deployment is invalid: spec.selector: field is immutable": "what the message names",
}


@pytest.mark.parametrize(("said", "way_out"), ADVICE.items(), ids=ADVICE.values())
def test_each_refusal_has_its_own_way_out(said: str, way_out: str) -> None:
    """Story: for a quota the message told users to give rights to the operator."""
    assert way_out in advice(ApiRefused(said, 422 if "immutable" in said else 403))
