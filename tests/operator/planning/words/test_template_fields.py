"""Fields of a pod template that the API server does not know: told by the user's path, and left out."""

from typing import Any

import pytest

from tussock.operator.planning.words.template_fields import without_unknown

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a.b/c": "d"}},
    "spec": {
        "nodeSelectr": {"disk": "fast"},
        "tolerations": [{"key": "a"}, {"keyy": "b", "operatr": "Exists"}],
        "containers": [
            {"name": "side", "image": "x", "imagePullPolcy": "Always"},
            {"name": "meta", "ports": [{"containerPort": 9, "hostt": 1}], "resources": {"limit": {"x.y/z": 1}}},
        ],
    },
}


def made(kind: str, template: dict[str, Any]) -> dict[str, Any]:
    """An object of that kind whose own container comes first, as the operator makes it."""
    containers = template["spec"]["containers"]
    own = {"image": "node", "feature": 1}
    spec = {**template["spec"], "containers": [{**containers[1], **own}, containers[0]]}
    found = {**template, "spec": spec}
    return {"kind": kind, **found} if kind == "Pod" else {"kind": kind, "spec": {"replicas": 2, "template": found}}


MESSAGES = {
    "nodeSelectr": "spec.nodeSelectr",
    'containers[name="side"].imagePullPolcy': "spec.containers[side].imagePullPolcy",
    "containers[1].imagePullPolcy": "spec.containers[side].imagePullPolcy",
    "tolerations[1].keyy": "spec.tolerations[1].keyy",
    'containers[name="meta"].ports[containerPort=9,protocol="TCP"].hostt': "spec.containers[meta].ports[0].hostt",
    "containers[0].resources.limit": "spec.containers[meta].resources.limit",
}
"""What the server says below the pod's spec, and the path in the user's template."""
PLACES = {
    "spec.podTemplate": ("Deployment", {"podTemplate": TEMPLATE}),
    "spec.objectStore.managed.podTemplate": ("StatefulSet", {"objectStore": {"managed": {"podTemplate": TEMPLATE}}}),
    "spec.driver.podTemplate": ("Pod", {"podTemplate": {}, "driver": {"podTemplate": TEMPLATE}}),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("said", MESSAGES)
def test_a_field_is_told_by_its_path_in_the_users_template(place: str, said: str) -> None:
    """In both forms of the server's messages; the object is the same without it."""
    kind, spec = PLACES[place]
    manifest = made(kind, TEMPLATE)
    field = f"spec.{said}" if kind == "Pod" else f".spec.template.spec.{said}"
    left, told = without_unknown(manifest, spec, [field])
    assert told == (f"{place}.{MESSAGES[said]}",)
    assert left != manifest
    assert without_unknown(left, spec, [field]) == (left, ())


def test_several_fields_go_at_once() -> None:
    """Two of one entry, too, whose place by its content is no longer known after the first."""
    manifest, spec = made("Deployment", TEMPLATE), {"podTemplate": TEMPLATE}
    fields = [f"spec.template.spec.{name}" for name in ("tolerations[1].keyy", "tolerations[1].operatr", "nodeSelectr")]
    left, told = without_unknown(manifest, spec, fields)
    assert len(told) == 3
    assert left["spec"]["template"]["spec"]["tolerations"] == [{"key": "a"}, {}]
    assert "nodeSelectr" not in left["spec"]["template"]["spec"]
    assert manifest == made("Deployment", TEMPLATE)


@pytest.mark.parametrize(
    "field",
    [
        ".spec.template.spec.containers[0].feature",
        ".spec.template.spec.containers[7].image",
        ".spec.template.spec.missing",
        ".spec.replicas",
        ".spec",
        "",
        "]",
    ],
)
def test_what_is_no_users_field_stays(field: str) -> None:
    """A server that is older than the operator may lack a field that the operator sets: nothing goes unreported."""
    manifest = made("Deployment", TEMPLATE)
    assert without_unknown(manifest, {"podTemplate": TEMPLATE}, [field]) == (manifest, ())
    assert without_unknown(manifest, {}, [".spec.template.spec.nodeSelectr"]) == (manifest, ())
