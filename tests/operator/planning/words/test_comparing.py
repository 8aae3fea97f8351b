"""Comparing a child with its manifest: when it has to be applied again."""

from typing import Any

import pytest

from tussock.operator.planning.words.comparison import APPLIED, applies, differences, digest, mark, prunes
from tussock.operator.planning.words.model import Apply, Delete, Ref, ref_of
from tussock.operator.planning.words.ownership import Holder


def deployment(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "m-meta"}, "spec": spec}


SAME = {
    "what the server adds": ({"a": 1}, {"a": 1, "b": 2}),
    "a quantity in another form": ({"cpu": "1000m"}, {"cpu": "1"}),
    "a quantity as a number": ({"cpu": 0.5}, {"cpu": "500m"}),
    "binary suffixes": ({"memory": "1024Mi"}, {"memory": "1Gi"}),
    "an exponent": ({"memory": "1e3"}, {"memory": "1k"}),
    "an empty map left out": ({"securityContext": {}}, {}),
    "an empty list left out": ({"env": []}, {}),
    "an empty text left out": ({"subPath": ""}, {}),
    "a false that is the default": ({"readOnly": False}, {}),
    "a zero that is the default": ({"initialDelaySeconds": 0}, {}),
    "an entry that somebody added": ([{"name": "a"}], [{"name": "sidecar"}, {"name": "a", "x": 1}]),
    "another order of entries with a key": ([{"name": "a"}, {"name": "b"}], [{"name": "b"}, {"name": "a"}]),
    "two protocols of one port": (
        [{"port": 53, "protocol": "UDP"}],
        [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
    ),
}
DIFFERENT = {
    "another number": ({"replicas": 1}, {"replicas": 2}, ["replicas"]),
    "a field that is gone": ({"a": {"b": 1}}, {"a": {}}, ["a.b"]),
    "a false whose absence means true": (
        {"automountServiceAccountToken": False},
        {},
        ["automountServiceAccountToken"],
    ),
    "a zero whose absence means one": ({"replicas": 0}, {}, ["replicas"]),
    "true for one": ({"a": 1}, {"a": True}, ["a"]),
    "an entry that is gone": ([{"name": "a"}], [{"name": "b"}], ["[a]"]),
    "an entry that was edited": ([{"name": "a", "image": "x"}], [{"name": "a", "image": "y"}], ["[a].image"]),
    "an argument more": (["serve"], ["serve", "--debug"], [""]),
    "another order of arguments": (["a", "b"], ["b", "a"], ["[0]", "[1]"]),
    "another quantity": ({"memory": "1G"}, {"memory": "1Gi"}, ["memory"]),
    "a version that looks like a number": ({"version": "1.10"}, {"version": "1.1x"}, ["version"]),
    "a map where a text should be": ({"a": "x"}, {"a": {"b": 1}}, ["a"]),
}


@pytest.mark.parametrize(("ours", "theirs"), SAME.values(), ids=SAME)
def test_normalised_values_are_no_difference(ours: Any, theirs: Any) -> None:
    assert differences(ours, theirs) == []


@pytest.mark.parametrize(("ours", "theirs", "found"), DIFFERENT.values(), ids=DIFFERENT)
def test_edits_are_found_with_their_path(ours: Any, theirs: Any, found: list[str]) -> None:
    assert differences(ours, theirs) == found


def test_a_digest_does_not_depend_on_the_order_of_fields() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


@pytest.mark.parametrize(
    ("child", "applied"),
    [
        pytest.param(None, True, id="missing"),
        pytest.param(mark(deployment(replicas=1)), False, id="as-made"),
        pytest.param(mark(deployment(replicas=2)), True, id="of-an-older-spec"),
        pytest.param({**mark(deployment(replicas=1)), "spec": {"replicas": 3}}, True, id="edited"),
        pytest.param(deployment(replicas=1), True, id="made-by-somebody-else"),
    ],
)
def test_only_differences_are_applied(child: dict[str, Any] | None, applied: bool) -> None:
    wanted = deployment(replicas=1)
    children = {Ref("Deployment", "m-meta"): child} if child else {}
    assert applies([wanted], children) == ((Apply(mark(wanted)),) if applied else ())


def claim(size: str, **more: Any) -> dict[str, Any]:
    """A claim as it is applied, with that size."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    metadata = {"name": "s-minio", **more}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def observed_claim(size: str) -> dict[str, Any]:
    """The claim that was made for 10 GiB, with its present size."""
    made = mark(claim("10Gi"))
    return {**made, "spec": claim(size)["spec"]}


def test_a_claim_that_has_grown_is_no_difference() -> None:
    """A user or an autoscaler enlarged it; a claim never shrinks, so applying the old size would fail for ever."""
    assert applies([claim("10Gi")], {Ref("PersistentVolumeClaim", "s-minio"): observed_claim("12Gi")}) == ()


def test_a_claim_grows_when_the_spec_does() -> None:
    [apply] = applies([claim("20Gi")], {Ref("PersistentVolumeClaim", "s-minio"): observed_claim("12Gi")})
    assert apply.manifest["spec"]["resources"]["requests"]["storage"] == "20Gi"


def test_a_claim_that_differs_elsewhere_keeps_its_size() -> None:
    wanted = claim("10Gi", labels={"a": "b"})
    [apply] = applies([wanted], {Ref("PersistentVolumeClaim", "s-minio"): observed_claim("12Gi")})
    assert apply.manifest["spec"]["resources"]["requests"]["storage"] == "12Gi"
    assert applies([wanted], {Ref("PersistentVolumeClaim", "s-minio"): apply.manifest}) == ()


def test_a_field_that_is_no_longer_set_is_noticed() -> None:
    """The observed object has all wanted fields and more, so only the digest shows it."""
    before, after = deployment(replicas=1, paused=True), deployment(replicas=1)
    assert applies([after], {Ref("Deployment", "m-meta"): mark(before)})


def test_other_annotations_of_the_operator_stay_beside_the_digest() -> None:
    manifest = deployment()
    manifest["metadata"]["annotations"] = {"a": "b"}
    assert mark(manifest)["metadata"]["annotations"] == {"a": "b", APPLIED: digest(manifest)}


@pytest.mark.parametrize(
    ("references", "goes"),
    [([{"uid": "mine"}], True), ([{"uid": "other"}, {"uid": "mine"}], True), ([{"uid": "other"}], False), ([], False)],
)
def test_only_own_children_are_pruned(references: list[dict[str, str]], goes: bool) -> None:
    """Story: a copy of a child under another name, which a user had made to try something, was deleted at once."""
    wanted = {"kind": "Service", "metadata": {"name": "a"}}
    copy = mark({"kind": "Service", "metadata": {"name": "copy", "ownerReferences": references}})
    found = prunes([wanted], {ref_of(wanted): mark(wanted), ref_of(copy): copy}, Holder("Meta", "m", "mine"))
    assert found == ((Delete(ref_of(copy)),) if goes else ())
