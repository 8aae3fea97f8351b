"""Every pod fits the restricted security profile, even if a user's template asks for more."""

import copy
from typing import Any

import pytest

from support.operator.pod_security import violations
from support.operator.resources import DEFAULTS, compactor_with, meta_with, store_with
from support.operator.store_cases import CASES, pod_templates
from tussock.operator.manifests.compactor import compactor_manifests
from tussock.operator.manifests.meta import meta_manifests

HOSTILE: dict[str, Any] = {
    "spec": {
        "hostNetwork": True,
        "hostPID": True,
        "hostIPC": True,
        "securityContext": {
            "runAsUser": 0,
            "runAsNonRoot": False,
            "sysctls": [{"name": "kernel.msgmax", "value": "1"}],
        },
        "volumes": [{"name": "node", "hostPath": {"path": "/"}}, {"name": "tmp", "hostPath": {"path": "/tmp"}}],
        "initContainers": [
            {"name": "tune", "image": "x", "securityContext": {"privileged": True, "procMount": "Unmasked"}}
        ],
        "containers": [
            {
                "name": "meta",
                "securityContext": {"privileged": True, "capabilities": {"add": ["SYS_ADMIN"]}, "runAsUser": 0},
                "ports": [{"containerPort": 7370, "hostPort": 7370}],
            },
            {
                "name": "side",
                "image": "x",
                "ports": [{"containerPort": 80, "hostPort": 80}],
                "securityContext": {
                    "runAsUser": 0,
                    "runAsNonRoot": False,
                    "allowPrivilegeEscalation": True,
                    "seccompProfile": {"type": "Unconfined"},
                    "capabilities": {"add": ["NET_RAW"]},
                    "seLinuxOptions": {"level": "s0"},
                },
            },
        ],
    }
}


@pytest.mark.parametrize("case", CASES)
def test_pods_fit_the_restricted_profile(case: str) -> None:
    """Beyond the profile root file systems are read-only, and pods have no API token."""
    templates = pod_templates(case)
    assert len(templates) >= 2
    for name, template in templates.items():
        spec = template["spec"]
        assert violations(spec) == [], name
        assert spec["automountServiceAccountToken"] is False
        assert spec["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
        assert spec["securityContext"]["runAsUser"] == 10001


def test_a_hostile_template_cannot_weaken_the_security_of_a_pod() -> None:
    """Forbidden fields are removed, and each removal is reported."""
    store = store_with({"managed": {}})
    rendered = meta_manifests(meta_with(podTemplate=HOSTILE), store, DEFAULTS)
    nodes = next(one for one in rendered.manifests if one["kind"] == "Deployment")
    spec = nodes["spec"]["template"]["spec"]
    assert violations(spec) == []
    assert {container["name"] for container in spec["containers"]} == {"meta", "side"}
    assert {"name": "tmp", "emptyDir": {}} in spec["volumes"]
    assert set(rendered.kept) == {
        "spec.hostNetwork",
        "spec.hostPID",
        "spec.hostIPC",
        *(f"spec.securityContext.{name}" for name in ("runAsUser", "runAsNonRoot", "sysctls")),
        "spec.volumes[node]",
        "spec.volumes[tmp]",
        "spec.initContainers[tune].securityContext.privileged",
        "spec.initContainers[tune].securityContext.procMount",
        "spec.containers[meta].ports[7370]",
        "spec.containers[meta].securityContext",
        "spec.containers[side].ports.hostPort",
        *(
            f"spec.containers[side].securityContext.{name}"
            for name in (
                *("runAsUser", "runAsNonRoot", "allowPrivilegeEscalation"),
                *("seccompProfile", "capabilities", "seLinuxOptions"),
            )
        ),
    }


def test_users_may_set_what_the_profile_allows() -> None:
    """Groups of a file server's volumes, and whether a user's container may write to its root file system."""
    template = {
        "spec": {
            "securityContext": {"supplementalGroups": [4000]},
            "containers": [
                {"name": "side", "image": "x", "securityContext": {"runAsUser": 5, "readOnlyRootFilesystem": False}}
            ],
        }
    }
    store = store_with({"managed": {}})
    compactor = compactor_with(podTemplate=template)
    rendered = compactor_manifests(compactor, store, ["m:7370"], DEFAULTS)
    nodes = next(one for one in rendered.manifests if one["kind"] == "Deployment")
    spec = nodes["spec"]["template"]["spec"]
    assert rendered.kept == ()
    assert spec["securityContext"]["supplementalGroups"] == [4000]
    assert spec["containers"][1]["securityContext"]["runAsUser"] == 5
    assert violations(spec) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("hostNetwork",), True),
        (("hostPID",), True),
        (("volumes",), [{"name": "v", "hostPath": {"path": "/"}}]),
        (("securityContext", "runAsNonRoot"), False),
        (("securityContext", "runAsUser"), 0),
        (("securityContext", "seccompProfile"), {"type": "Unconfined"}),
        (("securityContext", "sysctls"), [{"name": "a", "value": "1"}]),
        (("containers", 0, "securityContext", "privileged"), True),
        (("containers", 0, "securityContext", "allowPrivilegeEscalation"), True),
        (("containers", 0, "securityContext", "capabilities"), {}),
        (("containers", 0, "securityContext", "capabilities"), {"drop": ["ALL"], "add": ["SYS_TIME"]}),
        (("containers", 0, "securityContext", "runAsUser"), 0),
        (("containers", 0, "securityContext", "procMount"), "Unmasked"),
        (("containers", 0, "securityContext", "seLinuxOptions"), {"level": "s0"}),
        (("containers", 0, "ports"), [{"containerPort": 1, "hostPort": 1}]),
    ],
)
def test_the_rules_find_each_violation(path: tuple[Any, ...], value: Any) -> None:
    """The function finds each, so that no finding means that there is none."""
    spec: Any = copy.deepcopy(pod_templates("minimal")["Deployment/shop-meta"]["spec"])
    place = spec
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert violations(spec) != []
