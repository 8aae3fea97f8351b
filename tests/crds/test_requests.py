"""A real API server and manifests: what it refuses and why, what it keeps, what may change."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kubernetes.kubectl import Answer, Kubectl

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def cases(file: str) -> list[Any]:
    """The cases of a table, each with its name as the id of its test."""
    found = yaml.safe_load((HERE / f"{file}.yaml").read_text(encoding="utf-8"))
    return [pytest.param(case, id=case["name"]) for case in found]


def manifest(case: dict[str, Any], spec: Any) -> dict[str, Any]:
    """A manifest of the case's kind and name."""
    body = {"apiVersion": "tussock.dev/v1alpha1", "kind": case["kind"], "metadata": {"name": case["name"]}}
    return body if spec is None else body | {"spec": spec}


def problems(answer: Answer) -> list[str]:
    """The problems that kubectl printed about a refusal, one a line, without the type before a rule's message."""
    return [
        re.sub(r'Invalid value: "(object|string|integer)": ', "Invalid value: ", line)
        for line in answer.error.splitlines()
    ]


@pytest.mark.parametrize("case", cases("refused"))
def test_a_wrong_manifest_is_refused(kubectl: Kubectl, case: dict[str, Any]) -> None:
    """The message says what is wrong, and where."""
    answer = kubectl("create", "--dry-run=server", "-f", "-", manifest=manifest(case, case.get("spec")))
    assert answer.code != 0
    assert any(case["message"] in line for line in problems(answer)), answer.error


def test_unknown_fields_are_never_kept(kubectl: Kubectl) -> None:
    """Even with the check of unknown fields off no secret can be stored inline: the server drops the field."""
    spec = {"objectStore": {"s3": {"bucket": "data", "region": "eu-central-1", "secretAccessKey": "hunter2"}}}
    told = manifest({"kind": "StateStore", "name": "inline"}, spec)
    kept = kubectl.run_well("create", "--dry-run=server", "--validate=ignore", "-o", "yaml", "-f", "-", manifest=told)
    assert "region: eu-central-1" in kept
    assert "hunter2" not in kept


@pytest.mark.parametrize("case", cases("accepted"))
def test_a_right_manifest_is_kept_with_defaults(kubectl: Kubectl, case: dict[str, Any]) -> None:
    """The manifest is kept with its defaults filled in, and nothing else is changed."""
    made = kubectl.run_well(
        "create", "--dry-run=server", "-o", "yaml", "-f", "-", manifest=manifest(case, case["spec"])
    )
    assert yaml.safe_load(made)["spec"] == case["stored"]


@pytest.mark.parametrize("case", cases("changes"))
def test_a_change_that_loses_data_is_refused(kubectl: Kubectl, case: dict[str, Any]) -> None:
    """A change that would lose data is refused with the way out; all else may change."""
    kubectl.run_well("create", "-f", "-", manifest=manifest(case, case["before"]))
    try:
        answer = kubectl("replace", "-f", "-", manifest=manifest(case, case["after"]))
    finally:
        kubectl.run_well("delete", case["kind"], case["name"])
    if "message" in case:
        assert answer.code != 0
        assert any(case["message"] in line for line in problems(answer)), answer.error
    else:
        assert answer.code == 0, answer.error
