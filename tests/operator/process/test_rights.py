"""The operator needs only the rights that the chart gives it, and reports each missing one."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.buckets.minio import MinioServer
from support.kubernetes.kubectl import Kubectl
from support.operator.process import Objects, OperatorProcess, eventually
from support.operator.stores_in_cluster import serving, store_on

pytestmark = pytest.mark.minio
RULES = Path(__file__).resolve().parents[3] / "charts" / "tussock" / "templates" / "_rules.tpl"
Rules = list[dict[str, Any]]


def rules_of_the_chart() -> Rules:
    """The rules in `_rules.tpl`: their YAML is the same for every release."""
    text = re.sub(r"\{\{/\*.*?\*/\}\}", "", RULES.read_text(), flags=re.DOTALL)
    found: Rules = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "", text))
    assert all({"apiGroups", "resources", "verbs"} <= rule.keys() for rule in found)
    return found


def without(resource: str, *verbs: str) -> Rules:
    """The chart's rules without some verbs on one resource."""
    found: Rules = []
    for rule in rules_of_the_chart():
        found.append({**rule, "resources": [name for name in rule["resources"] if name != resource]})
        if resource in rule["resources"]:
            found.append({**rule, "resources": [resource], "verbs": [v for v in rule["verbs"] if v not in verbs]})
    return [rule for rule in found if rule["resources"] and rule["verbs"]]


class Account:
    """A service account with rules in one namespace, and an operator that runs as it."""

    def __init__(self, objects: Objects, folder: Path, rules: Rules) -> None:
        self._objects = objects
        self._kubectl = Kubectl(objects.kubeconfig, folder / "cache")
        space = objects.namespace
        self.allow(rules)
        lease = [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": [space],
                "verbs": ["get", "update"],
            },
        ]
        self._kubectl.run_well("apply", "-f", "-", manifest=self._role(f"{space}-lease", "default", lease))
        self._kubectl.run_well("create", "serviceaccount", "operator", f"--namespace={space}")
        token = self._kubectl.run_well("create", "token", "operator", f"--namespace={space}").strip()
        config = yaml.safe_load(objects.kubeconfig.read_text())
        config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        self.operator = OperatorProcess(kubeconfig, folder, space, lease=space)

    def allow(self, rules: Rules) -> None:
        """Give the account these rights in its namespace, and no others."""
        space = self._objects.namespace
        self._kubectl.run_well("apply", "-f", "-", manifest=self._role("operator", space, rules))

    def _role(self, name: str, namespace: str, rules: Rules) -> list[dict[str, Any]]:
        api = "rbac.authorization.k8s.io"
        metadata = {"name": name, "namespace": namespace}
        subject = {"kind": "ServiceAccount", "name": "operator", "namespace": self._objects.namespace}
        reference = {"apiGroup": api, "kind": "Role", "name": name}
        return [
            {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
            {
                "apiVersion": f"{api}/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]


@pytest.fixture
def account(objects: Objects, tmp_path: Path) -> Callable[[Rules], Account]:
    return lambda rules: Account(objects, tmp_path, rules)


def test_the_rights_of_the_chart_are_enough(
    account: Callable[[Rules], Account], objects: Objects, minio: MinioServer
) -> None:
    """From an empty namespace to the deletion of the store, certificates included, no request is forbidden."""
    operator = account(rules_of_the_chart()).operator
    operator.start()
    store = store_on(minio, objects, "s")
    store["spec"]["tls"] = {}
    serving(objects, store)
    objects.patch("Deployment", "s-meta", {"spec": {"replicas": 4}})
    eventually("an event", lambda: "ChildRestored" in [event["reason"] for event in objects.events("s")])
    objects.delete("StateStore", "s")
    eventually("the store gone", lambda: objects.get("StateStore", "s") is None)
    assert "orbidden" not in operator.log()
    assert " 403" not in operator.log()
    assert operator.stop() == 0


MISSING = [
    ("deployments", "create", "Meta"),
    ("configmaps", "create", "Meta"),
    ("metas", "create", "StateStore"),
    ("networkpolicies", "create", "StateStore"),
]


@pytest.mark.parametrize(("resource", "verb", "told_by"), MISSING)
def test_a_missing_right_is_reported_and_heals(
    resource: str,
    verb: str,
    told_by: str,
    account: Callable[[Rules], Account],
    objects: Objects,
    minio: MinioServer,
) -> None:
    """A condition has verb and object; with the right given, the store begins, and the process has not ended."""
    given = account(without(resource, verb))
    given.operator.start()
    objects.apply(store_on(minio, objects, "s"))
    found = objects.await_reason(told_by, "s", "ApplyRefused")
    assert f"{verb} resource" in found["message"]
    assert resource in found["message"]
    given.allow(rules_of_the_chart())
    eventually("meta nodes", lambda: objects.get("Deployment", "s-meta"))
    assert given.operator.stop() == 0


@pytest.mark.parametrize(("resource", "verb"), [("services", "watch"), ("statestores/status", "patch")])
def test_a_missing_right_to_read_or_report_is_logged(
    resource: str, verb: str, account: Callable[[Rules], Account], objects: Objects, minio: MinioServer
) -> None:
    """No condition can report it. The process waits, and does not end."""
    given = account(without(resource, verb))
    given.operator.start()
    objects.apply(store_on(minio, objects, "s"))
    eventually("a line", lambda: "forbidden" in given.operator.log() and resource in given.operator.log())
    assert given.operator.ask("/healthz") == "ok\n"
    given.allow(rules_of_the_chart())
    eventually("meta nodes", lambda: objects.get("Deployment", "s-meta"))
    assert given.operator.stop() == 0
