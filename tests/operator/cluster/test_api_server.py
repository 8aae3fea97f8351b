"""The API server that other tests rely on is a real one: it validates, authorizes, and audits."""

import json
from pathlib import Path

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException


@pytest.fixture
def admin(api_server: Path) -> client.ApiClient:
    return config.new_client_from_config(str(api_server))


def test_writes_are_audited(admin: client.ApiClient, api_server: Path) -> None:
    """A write is in the audit log with its user, agent and field manager; a read is not."""
    core = client.CoreV1Api(admin)
    name = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="audited"))
    core.create_namespaced_config_map("default", name, field_manager="somebody")
    core.read_namespaced_config_map("audited", "default")
    lines = [json.loads(line) for line in (api_server.parent / "audit.log").read_text().splitlines()]
    [line] = [line for line in lines if line["objectRef"].get("name") == "audited"]
    assert (line["verb"], line["user"]["username"]) == ("create", "admin")
    assert line["userAgent"].startswith("OpenAPI-Generator")
    assert "fieldManager=somebody" in line["requestURI"]


def test_schema_is_enforced(admin: client.ApiClient) -> None:
    """What doesn't fit its schema is refused, with the path of the field."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wrong"}, "spec": {"containers": []}}
    with pytest.raises(ApiException, match=r"spec\.containers: Required value") as error:
        client.CoreV1Api(admin).create_namespaced_pod("default", pod)
    assert error.value.status == 422


def test_roles_are_enforced(admin: client.ApiClient) -> None:
    """An account without a role may do nothing."""
    admin.set_default_header("Impersonate-User", "nobody")
    with pytest.raises(ApiException) as error:
        client.CoreV1Api(admin).list_namespaced_secret("default")
    assert error.value.status == 403
