"""What a user's pod template cannot add to our pods, since any value of it would undo a setting.

Story: `command: [sh]` stayed in the pods of meta nodes, variables overrode the file of settings, and a second port of
the name `grpc` made the API server refuse the whole Deployment; no event told of any of them.
"""

from typing import Any

import pytest

from support.operator.compute_cases import ADDRESSES, compute_with
from support.operator.resources import DEFAULTS, compactor_with, meta_with, store_with
from tussock.operator.manifests.compactor import compactor_manifests
from tussock.operator.manifests.compute.pods import driver_template, executor_template
from tussock.operator.manifests.meta import meta_manifests
from tussock.operator.manifests.minio import minio_manifests
from tussock.operator.resources import InvalidResource
from tussock.operator.resources.object_store import ManagedStore

STORE = store_with({"managed": {}})


def template_of(component: str, user: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The pod template of a component merged with the user's, and the overruled paths."""
    match component:
        case "meta":
            found = meta_manifests(meta_with(podTemplate=user), STORE, DEFAULTS)
        case "compactor":
            found = compactor_manifests(compactor_with(podTemplate=user), STORE, ADDRESSES, DEFAULTS)
        case "minio":
            store = store_with({"managed": {"podTemplate": user}})
            managed = store.spec.object_store.backend
            assert isinstance(managed, ManagedStore)
            found = minio_manifests(store, managed, DEFAULTS, "7")
        case "driver":
            return driver_template(compute_with(podTemplate=user), STORE, ADDRESSES, "image")
        case _:
            return executor_template(compute_with(podTemplate=user), STORE, ADDRESSES, "image")
    [workload] = [one for one in found.manifests if one["kind"] in ("Deployment", "StatefulSet")]
    return workload["spec"]["template"], found.kept


NODES = {"meta": "meta", "compactor": "compactor", "minio": "minio", "driver": "compute", "executor": "compute"}
"""The components, and the names of their containers."""


def variable(name: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": "1"}]}


def mount(path: str) -> dict[str, Any]:
    return {"volumeMounts": [{"name": "mine", "mountPath": path}]}


OF_ALL: dict[str, dict[str, Any]] = {
    "command": {"command": ["sh"]},
    "args": {"args": ["-c", "sleep 1d"]},
    "workingDir": {"workingDir": "/srv"},
    "restartPolicy": {"restartPolicy": "Never"},
    "terminationMessagePath": {"terminationMessagePath": "/srv/end"},
}


@pytest.mark.parametrize("component", NODES)
@pytest.mark.parametrize("field", OF_ALL)
def test_what_a_node_runs_is_the_operators(component: str, field: str) -> None:
    """Whether or not the operator sets a value: fields of the container that say what runs and how it ends."""
    name = NODES[component]
    found, kept = template_of(component, {"spec": {"containers": [{"name": name, **OF_ALL[field]}]}})
    assert kept == (f"spec.containers[{name}].{field}",)
    assert found == template_of(component, {})[0]


@pytest.mark.parametrize("component", NODES)
@pytest.mark.parametrize(
    ("field", "value"),
    [("hostname", "a"), ("serviceAccount", "admin"), ("serviceAccountName", "admin"), ("shareProcessNamespace", True)],
)
def test_a_pod_keeps_its_name_its_account_and_its_files(component: str, field: str, value: Any) -> None:
    """Even where the operator sets nothing: a server of objects and executors have no account."""
    found, kept = template_of(component, {"spec": {field: value}})
    assert kept == (f"spec.{field}",)
    assert found == template_of(component, {})[0]


@pytest.mark.parametrize(
    ("component", "fields", "path"),
    [
        ("meta", variable("TUSSOCK_META_TLS__CLIENT_CA"), "env[TUSSOCK_META_TLS__CLIENT_CA]"),
        ("meta", variable("TUSSOCK_META_STORE"), "env[TUSSOCK_META_STORE]"),
        ("meta", {"envFrom": [{"configMapRef": {"name": "mine"}}]}, "envFrom[0]"),
        ("meta", {"envFrom": [{"prefix": "TUSSOCK_META_", "secretRef": {"name": "mine"}}]}, "envFrom[0]"),
        ("meta", {"envFrom": [{"prefix": "TUSS", "secretRef": {"name": "mine"}}]}, "envFrom[0]"),
        ("meta", {"ports": [{"name": "grpc", "containerPort": 1}]}, "ports[1]"),
        ("meta", mount("/etc/tussock/tls/ca.crt"), "volumeMounts[/etc/tussock/tls/ca.crt]"),
        ("meta", mount("/etc/tussock/meta/"), "volumeMounts[/etc/tussock/meta/]"),
        ("meta", mount("//etc/x/../tussock/meta"), "volumeMounts[//etc/x/../tussock/meta]"),
        ("meta", mount("/tmp/."), "volumeMounts[/tmp/.]"),
        ("compactor", variable("TUSSOCK_COMPACTOR_NAME"), "env[TUSSOCK_COMPACTOR_NAME]"),
        ("minio", variable("MINIO_ROOT_PASSWORD"), "env[MINIO_ROOT_PASSWORD]"),
        ("minio", mount("/data/.minio.sys"), "volumeMounts[/data/.minio.sys]"),
        ("driver", variable("TUSSOCK_TOKEN_FILE"), "env[TUSSOCK_TOKEN_FILE]"),
        ("executor", variable("SPARK_JAVA_OPT_9"), "env[SPARK_JAVA_OPT_9]"),
    ],
)
def test_settings_ports_and_files_are_the_operators(component: str, fields: dict[str, Any], path: str) -> None:
    """Variables that would override settings, ports of our names, and mounts that would hide our files."""
    name = NODES[component]
    found, kept = template_of(component, {"spec": {"containers": [{"name": name, **fields}]}})
    assert kept == (f"spec.containers[{name}].{path}",)
    assert found == template_of(component, {})[0]


def test_no_other_container_has_the_name_of_a_node() -> None:
    """The API server would refuse the whole pod."""
    first = [{"name": "meta", "image": "x"}, {"name": "mine", "image": "x"}]
    found, kept = template_of("meta", {"spec": {"initContainers": first}})
    assert kept == ("spec.initContainers[meta]",)
    assert [container["name"] for container in found["spec"]["initContainers"]] == ["mine"]


@pytest.mark.parametrize(
    ("component", "fields"),
    [
        ("meta", variable("TZ")),
        ("meta", {"envFrom": [{"prefix": "AWS_", "secretRef": {"name": "mine"}}]}),
        ("meta", {"ports": [{"name": "debug", "containerPort": 1}]}),
        ("meta", mount("/etc/tussock-extra")),
        ("meta", mount("/tmp/scratch")),
        ("compactor", variable("TUSSOCK_COMPACTOR_LOG_LEVEL")),
        ("driver", {"envFrom": [{"secretRef": {"name": "kafka"}}]}),
        ("driver", variable("MINIO_URL")),
    ],
)
def test_what_undoes_no_setting_is_the_users(component: str, fields: dict[str, Any]) -> None:
    """It is in the pod, and no event tells of it."""
    found, kept = template_of(component, {"spec": {"containers": [{"name": NODES[component], **fields}]}})
    assert kept == ()
    [(field, [entry])] = fields.items()
    assert entry in found["spec"]["containers"][0][field]


def test_a_users_own_container_may_have_everything() -> None:
    """Its command and variables are its own, whatever their names."""
    mine = {"name": "mine", "image": "x", "command": ["sh"], **variable("TUSSOCK_STORE"), **mount("/etc/tussock/tls")}
    found, kept = template_of("meta", {"spec": {"containers": [mine]}})
    assert kept == ()
    assert mine.items() <= found["spec"]["containers"][1].items()


@pytest.mark.parametrize("component", NODES)
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"containers": [{"image": "x"}]}, "without name at spec.containers[0]"),
        ({"containers": {"name": "x"}}, "spec.containers that is no list"),
        ({"containers": ["x"]}, "spec.containers[0] that is no object"),
        ({"volumes": [{"emptyDir": {}}]}, "without name at spec.volumes[0]"),
        ({"containers": [{"name": "x", "env": [{"value": "1"}]}]}, "without name at spec.containers[x].env[0]"),
        ({"securityContext": "none"}, "spec.securityContext that is no object"),
    ],
)
def test_a_template_that_cannot_be_merged_is_an_invalid_spec(component: str, spec: Any, words: str) -> None:
    """Story: a container without a name ended each pass with a KeyError, and no status told why."""
    with pytest.raises(InvalidResource) as raised:
        template_of(component, {"spec": spec})
    assert words in str(raised.value)
