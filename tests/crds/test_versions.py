"""Two versions of the definitions at a real API server, as `docs/operator/versions.md` plans them.

The definitions are those of `crds/` in a group for this file alone, since the others are used by all tests here.
"""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kubernetes.kubectl import Kubectl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/operator/versions.md"
GROUP = "versions.tussock.dev"
OLD, NEW = "v1alpha1", "v1beta1"


def definitions(group: str = GROUP) -> list[dict[str, Any]]:
    """The five definitions, with the older version stored and the planned one served beside it."""
    found = []
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        one = yaml.safe_load(path.read_text(encoding="utf-8"))
        one["metadata"] = {"name": f"{one['spec']['names']['plural']}.{group}"}
        one["spec"]["group"] = group
        [old] = one["spec"]["versions"]
        one["spec"]["versions"] = [old, {**copy.deepcopy(old), "name": NEW, "storage": False}]
        found.append(one)
    return found


@pytest.fixture(scope="module")
def planned(kubectl: Kubectl) -> Kubectl:
    define(kubectl, definitions())
    return kubectl


def define(kubectl: Kubectl, wanted: list[dict[str, Any]]) -> None:
    kubectl.run_well("apply", "--server-side", "-f", "-", manifest=wanted)
    names = [f"crd/{one['metadata']['name']}" for one in wanted]
    kubectl.run_well("wait", "--for=condition=Established", "--timeout=30s", *names)


def accepted() -> list[dict[str, Any]]:
    """A manifest for each spec that the definitions accept, and what is stored of it."""
    cases: list[dict[str, Any]] = yaml.safe_load((HERE / "accepted.yaml").read_text(encoding="utf-8"))
    return cases


def manifest(case: dict[str, Any], version: str, spec: Any) -> dict[str, Any]:
    metadata = {"name": case["name"], "namespace": "default"}
    return {"apiVersion": f"{GROUP}/{version}", "kind": case["kind"], "metadata": metadata, "spec": spec}


def specs(kubectl: Kubectl, kind: str, version: str) -> dict[str, Any]:
    """The specs of all objects of a kind, as a client of that version reads them."""
    out = kubectl.run_well("get", f"{kind}.{version}.{GROUP}".lower(), "--output", "yaml")
    return {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load(out)["items"]}


def test_every_accepted_spec_is_whole_in_both_versions(planned: Kubectl) -> None:
    """Written in either version and read in either; and written again in the other one, as an editor does."""
    cases = accepted()
    half = len(cases) // 2
    objects = [manifest(case, OLD if number < half else NEW, case["spec"]) for number, case in enumerate(cases)]
    planned.run_well("create", "-f", "-", manifest=objects)
    for kind in {case["kind"] for case in cases}:
        stored = {case["name"]: case["stored"] for case in cases if case["kind"] == kind}
        for version in (OLD, NEW):
            assert specs(planned, kind, version) == stored
    again = [manifest(case, NEW if number < half else OLD, case["stored"]) for number, case in enumerate(cases)]
    planned.run_well("replace", "-f", "-", manifest=again)
    for kind in {case["kind"] for case in cases}:
        stored = {case["name"]: case["stored"] for case in cases if case["kind"] == kind}
        assert specs(planned, kind, OLD) == specs(planned, kind, NEW) == stored
    planned.run_well("delete", "-f", "-", manifest=again)


def test_the_worked_example_of_the_page(kubectl: Kubectl, tmp_path: Path) -> None:
    """Its lines, one by one, until the older version is gone from storage and is not served: nothing is lost."""
    group = f"example.{GROUP}"
    define(kubectl, [one for one in definitions(group) if one["spec"]["names"]["kind"] == "StateStore"])
    page = PAGE.read_text(encoding="utf-8").partition("## A worked example")[2]
    block = re.search(r"```sh\n(.*?)```", page, re.DOTALL)
    assert block is not None
    case = next(case for case in accepted() if case["name"] == "s3-store-with-readers")
    shop = {**manifest(case, OLD, case["spec"]), "apiVersion": f"{group}/{OLD}"}
    shop["metadata"] = {"name": "shop", "namespace": "default"}
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(shop))
    read = []
    for line in block[1].splitlines():
        out = kubectl.shell(line.replace("tussock.dev", group), tmp_path)
        if line.endswith("--output yaml"):
            found = yaml.safe_load(out)
            read.append(found["apiVersion"])
            assert found["spec"] == case["stored"], line
    assert read == [f"{group}/{NEW}", f"{group}/{OLD}", f"{group}/{NEW}"]
    crd = yaml.safe_load(kubectl.run_well("get", "crd", f"statestores.{group}", "--output", "yaml"))
    assert crd["status"]["storedVersions"] == [NEW]
    gone = kubectl("get", f"statestores.{OLD}.{group}", "shop")
    assert gone.code != 0


def test_a_field_that_one_version_lacks_is_lost(kubectl: Kubectl) -> None:
    """Why all versions have one schema: with the strategy `None` a renamed field is dropped, without a word."""
    group = f"renamed.{GROUP}"
    [store] = [one for one in definitions(group) if one["spec"]["names"]["kind"] == "StateStore"]
    spec = store["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["keepSeconds"] = spec["properties"].pop("retentionSeconds")
    define(kubectl, [store])
    body = {
        "apiVersion": f"{group}/{OLD}",
        "kind": "StateStore",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"objectStore": {"managed": {}}, "retentionSeconds": 60},
    }
    kubectl.run_well("create", "-f", "-", manifest=body)
    out = kubectl.run_well("get", f"statestores.{NEW}.{group}", "shop", "--output", "yaml")
    found = yaml.safe_load(out)["spec"]
    assert "retentionSeconds" not in found
    assert "keepSeconds" not in found
