"""A child is made and changed; an object that only has its name is not, whenever it comes."""

from typing import Any

import pytest

from support.operator.process import Body, Objects, with_api
from tussock.operator.cluster.api import Api
from tussock.operator.cluster.application import apply_child
from tussock.operator.cluster.errors import ApiConflict, ApiRefused, ApiUnavailable, NameInUse
from tussock.operator.manifests.labels import MANAGED_BY, OWNER_KIND_LABEL, OWNER_LABEL
from tussock.operator.planning.words.comparison import mark
from tussock.operator.planning.words.model import Manifest
from tussock.operator.planning.words.ownership import Holder, belongs

HOLDER = Holder("Meta", "m", "11111111-2222-3333-4444-555555555555")
LABELS = {"app.kubernetes.io/managed-by": MANAGED_BY, OWNER_KIND_LABEL: "Meta", OWNER_LABEL: "m"}


def reference(uid: str = HOLDER.uid, kind: str = "Meta", name: str = "m") -> Body:
    return {"apiVersion": "tussock.dev/v1alpha1", "kind": kind, "name": name, "uid": uid}


def child(**data: str) -> Manifest:
    metadata = {"name": "m-meta", "labels": LABELS, "ownerReferences": [reference()]}
    return mark({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def foreign(objects: Objects) -> Body:
    """Make a foreign object of the child's name; returns it as stored."""
    objects.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m-meta"}, "data": {"mine": "1"}})
    return objects.get("ConfigMap", "m-meta") or {}


def test_a_child_is_created_changed_and_loses_unset_fields(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(api: Api) -> None:
        for data in ({"a": "1", "b": "1"}, {"a": "2"}):
            found = await apply_child(api, child(**data), objects.namespace, HOLDER)
            assert found["data"] == data

    with_api(objects, monkeypatch, check)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("\U0001f600 and \u00fc", "\U0001f600 and \u00fc"),
        ("a \\ud83d\\ude00 that is no escape", "a \\ud83d\\ude00 that is no escape"),
        ("half a pair: \ud83d", "half a pair: \ufffd"),
        ('\x00\x07\x7f\x85\u2028\ufeff\uffff\t\n"', '\x00\x07\x7f\x85\u2028\ufeff\uffff\t\n"'),
    ],
    ids=["beyond 16 bits", "backslashes", "half a pair", "control characters"],
)
def test_any_text_is_sent_to_the_server(
    objects: Objects, monkeypatch: pytest.MonkeyPatch, text: str, kept: str
) -> None:
    """Once a prefix with an emoji made each status of its store unreadable for the server."""

    async def check(api: Api) -> None:
        assert (await apply_child(api, child(a=text), objects.namespace, HOLDER))["data"] == {"a": kept}
        assert (await apply_child(api, child(a=text), objects.namespace, HOLDER))["data"] == {"a": kept}

    with_api(objects, monkeypatch, check)


def test_the_next_operator_continues_after_a_death_behind_the_creation(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next operator may remove fields of the first manifest."""

    async def check(api: Api) -> None:
        async def dies(*_: Any) -> Manifest:
            raise ApiUnavailable("the process has ended")

        with monkeypatch.context() as patch:
            patch.setattr(api, "merge", dies)
            with pytest.raises(ApiUnavailable):
                await apply_child(api, child(a="1", b="1"), objects.namespace, HOLDER)
        found = await apply_child(api, child(a="1"), objects.namespace, HOLDER)
        assert found["data"] == {"a": "1"}

    with_api(objects, monkeypatch, check)


def test_an_object_that_is_created_after_the_check_is_not_taken_over(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(api: Api) -> None:
        before: list[Body] = []
        look = api.look

        async def looks_too_early(*place: str) -> Manifest | None:
            found = await look(*place)
            before.append(foreign(objects))
            return found

        with monkeypatch.context() as patch:
            patch.setattr(api, "look", looks_too_early)
            with pytest.raises(ApiConflict):
                await apply_child(api, child(a="1"), objects.namespace, HOLDER)
        with pytest.raises(NameInUse, match="ConfigMap m-meta"):
            await apply_child(api, child(a="1"), objects.namespace, HOLDER)
        assert objects.get("ConfigMap", "m-meta") == before[0]

    with_api(objects, monkeypatch, check)


def test_an_object_that_replaces_the_child_after_the_check_is_not_taken_over(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(api: Api) -> None:
        await apply_child(api, child(a="1"), objects.namespace, HOLDER)
        before: list[Body] = []
        look = api.look

        async def looks_too_early(*place: str) -> Manifest | None:
            found = await look(*place)
            objects.delete("ConfigMap", "m-meta")
            before.append(foreign(objects))
            return found

        with monkeypatch.context() as patch:
            patch.setattr(api, "look", looks_too_early)
            with pytest.raises(ApiRefused, match="uid"):
                await apply_child(api, child(a="2"), objects.namespace, HOLDER)
        assert objects.get("ConfigMap", "m-meta") == before[0]

    with_api(objects, monkeypatch, check)


OTHER = "99999999-2222-3333-4444-555555555555"
WHOSE: dict[str, tuple[dict[str, str], list[Body], bool]] = {
    "nobody's": ({}, [], False),
    "with our labels, as a claim that outlived its owner": (LABELS, [], True),
    "without labels, but with our owner": ({}, [reference()], True),
    "of another owner": ({}, [reference(OTHER, "Deployment", "x")], False),
    "of a former owner of that name": (LABELS, [reference(OTHER)], False),
    "of a release of Helm's with one of our labels": ({OWNER_LABEL: "m"}, [], False),
    "of another resource of this operator": ({**LABELS, OWNER_LABEL: "other"}, [], False),
    "of a resource of another kind": ({**LABELS, OWNER_KIND_LABEL: "Compactor"}, [], False),
}


@pytest.mark.parametrize(("labels", "references", "ours"), WHOSE.values(), ids=WHOSE)
def test_the_owner_of_an_object_is_recognised(labels: dict[str, str], references: list[Body], ours: bool) -> None:
    assert belongs({"metadata": {"labels": labels, "ownerReferences": references}}, HOLDER) is ours


def test_a_child_of_a_former_owner_is_waited_for(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is deleted by itself, so no message asks the user to do anything."""

    async def check(api: Api) -> None:
        former = child(a="1")
        former["metadata"] = {**former["metadata"], "ownerReferences": [reference(OTHER)]}
        objects.apply(former)
        with pytest.raises(NameInUse) as refused:
            await apply_child(api, child(a="2"), objects.namespace, HOLDER)
        assert refused.value.passes

    with_api(objects, monkeypatch, check)
