"""The manifests of `examples/kubernetes`: a real API server takes them, and the operator can read them."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kubernetes.kubectl import Kubectl
from tussock.operator import resources

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
PARSERS = {
    "StateStore": resources.parse_store,
    "Meta": resources.parse_meta,
    "Compactor": resources.parse_compactor,
    "Compute": resources.parse_compute,
    "StateStoreBackup": resources.parse_backup,
    "StateStoreClient": resources.parse_client,
}


def bodies(path: Path) -> list[dict[str, Any]]:
    """The objects of a file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def test_the_examples_are_there() -> None:
    """At least quickstart, production, scale, backup and restore."""
    assert {path.stem for path in EXAMPLES} >= {"backup", "production", "quickstart", "restore", "scale"}
    listed = re.findall(
        r"^\| \[(\S+)\]\(\1\)", (EXAMPLES[0].parent / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == [path.name for path in EXAMPLES]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_api_server_accepts_every_example(kubectl: Kubectl, path: Path) -> None:
    """Every object is accepted without a warning, and the operator can read it as the server keeps it."""
    answer = kubectl("create", "--dry-run=server", "--validate=strict", "-o", "yaml", "-f", str(path))
    assert (answer.code, answer.error) == (0, "")
    made = [body for found in yaml.safe_load_all(answer.out) for body in found.get("items", [found])]
    assert [body["kind"] for body in made] == [body["kind"] for body in bodies(path)]
    for body in made:
        if body["apiVersion"].startswith("tussock.dev/"):
            assert PARSERS[body["kind"]](body).name == body["metadata"]["name"]


def program_of(path: Path, config_map: dict[str, str], there: dict[tuple[str, str], Any]) -> str:
    """The program in a ConfigMap of the example, or in the folder from which its comment has one made."""
    name, key = config_map["name"], config_map["key"]
    made = re.search(rf"# +kubectl create configmap {name} --from-file=(\S+)", path.read_text(encoding="utf-8"))
    if made:
        return (ROOT / made[1] / key).read_text(encoding="utf-8")
    program: str = there["ConfigMap", name]["data"][key]
    return program


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_reference_has_its_object(path: Path) -> None:
    """Every object that an example names is in the same file, or in the one that it builds on."""
    files = {path, path.with_stem("quickstart"), path.with_stem("backup")}
    there = {(body["kind"], body["metadata"]["name"]): body for file in files for body in bodies(file)}
    for body in bodies(path):
        spec = body.get("spec", {})
        if "storeRef" in spec:
            assert ("StateStore", spec["storeRef"]["name"]) in there
        if backup := spec.get("restoreFrom", {}).get("backup"):
            assert ("StateStoreBackup", backup) in there
        if config_map := spec.get("application", {}).get("configMap"):
            program = program_of(path, config_map, there)
            compile(program, config_map["key"], "exec")
        if folder := spec.get("service", {}).get("configMap"):
            key = f"{spec['service']['module'].partition(':')[0]}.py"
            compile(there["ConfigMap", folder["name"]]["data"][key], key, "exec")
        if target := spec.get("scaleTargetRef"):
            # A Compactor that the StateStore of its name makes.
            assert ("StateStore", target["name"]) in there


def test_the_quickstart_runs_the_program_of_this_repository() -> None:
    """The program's path is where the image for Spark has the examples, and the program is there."""
    (compute,) = [body for body in bodies(ROOT / "examples/kubernetes/quickstart.yaml") if body["kind"] == "Compute"]
    found = re.fullmatch(r"/opt/tussock/examples/(\w+\.py)", compute["spec"]["application"]["file"])
    assert found
    assert (ROOT / "examples" / found[1]).is_file()
