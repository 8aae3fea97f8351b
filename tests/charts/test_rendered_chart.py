"""What the chart makes of its values, without a cluster."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.binaries import KUBERNETES_VERSION
from support.kubernetes.helm import Helm
from support.kubernetes.promtool import Promtool
from support.operator.compute_cases import CASES, manifests_of
from support.operator.resources import store_with
from support.operator.services.service_cases import SERVICE_CASES, children_of
from support.operator.store_cases import pod_templates
from tussock.operator.manifests.compute.conf import STATUS_PORT
from tussock.operator.manifests.meta import meta_name, web_port
from tussock.operator.manifests.service.names import service_server_name
from tussock.operator.manifests.transport_security import has_tls, server_name, tls_secret
from tussock.operator.settings import PREFIX, OperatorSettings, load_settings

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/tussock"
Rendered = Callable[..., dict[tuple[str, str], dict]]


def operator_pod(objects: dict[tuple[str, str], dict]) -> dict:
    return objects["Deployment", "r-operator"]["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"watchNamespaces": ["a", "b"]},
        {"crds": {"install": False, "keep": False}, "replicas": 1, "networkPolicy": False},
        {
            "metrics": {
                "podMonitors": True,
                "rules": True,
                "labels": {"team": "x"},
                "tlsStores": [{"namespace": "a", "name": "b"}],
            },
            "dashboard": {"enabled": True},
        },
        {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}},
        {"image": {"pullSecrets": ["one"], "registry": "registry.example/x", "tag": "9"}, "podAnnotations": {"a": "b"}},
    ],
    ids=["defaults", "two namespaces", "the least", "monitoring", "placement", "images"],
)
def test_helm_finds_nothing_to_complain_about(helm: Helm, values: dict) -> None:
    told = helm.run_well("lint", "--strict", str(CHART), values=values)
    assert "1 chart(s) linted, 0 chart(s) failed" in told


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 1}, "replica"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": "two"}, "replicas"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"watchNamespaces": ["Not_A_Name"]}, "watchNamespaces"),
        ({"watchNamespaces": ["a", "a"]}, "watchNamespaces"),
        ({"log": {"level": "loud"}}, "level"),
        ({"metrics": {"interval": "often"}}, "interval"),
        ({"metrics": {"thresholds": {"lag": 1}}}, "lag"),
        ({"metrics": {"thresholds": {"lagSeconds": "long"}}}, "lagSeconds"),
        ({"metrics": {"tlsStores": [{"name": "shop"}]}}, "namespace"),
        ({"metrics": {"tlsServices": [{"namespace": "data", "name": "bank"}]}}, "store"),
        ({"image": {"registry": "https://x/"}}, "registry"),
        ({"rolloutParallel": 2}, "rolloutParallel"),
        ({"upgrade": {"maxUnavailable": 0}}, "maxUnavailable"),
        ({"upgrade": {"maxUnavailable": "101%"}}, "maxUnavailable"),
        ({"upgrade": {"mode": "Ask"}}, "mode"),
    ],
)
def test_wrong_values_are_refused_by_name(helm: Helm, values: dict, named: str) -> None:
    ended = helm.run("template", "r", str(CHART), "--kube-version", KUBERNETES_VERSION, values=values)
    assert ended.returncode != 0
    assert named in ended.stderr


def test_the_definitions_are_those_of_the_repository(render: Rendered) -> None:
    """The chart has all definitions, annotated so that Helm keeps them; with `crds.install` off it has none."""
    mine = {}
    for path in (ROOT / "crds").glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        crd["metadata"].setdefault("annotations", {})["helm.sh/resource-policy"] = "keep"
        mine[crd["metadata"]["name"]] = crd
    assert len(mine) == 6
    assert {name: one for (kind, name), one in render().items() if kind == "CustomResourceDefinition"} == mine
    objects = render(crds={"keep": False})
    assert "annotations" not in objects["CustomResourceDefinition", "metas.tussock.dev"]["metadata"]
    assert not [kind for kind, _ in render(crds={"install": False}) if kind == "CustomResourceDefinition"]


@pytest.mark.parametrize(("value", "text"), [(3, "3"), ("25%", "25%")])
def test_stores_that_may_be_away_are_a_number_or_a_percentage(render: Rendered, value: object, text: str) -> None:
    """The operator takes what the chart lets through."""
    variables = operator_pod(render(upgrade={"maxUnavailable": value}))["containers"][0]["env"]
    [found] = [one["value"] for one in variables if one["name"] == f"{PREFIX}MAX_UNAVAILABLE"]
    assert found == text
    assert load_settings([], {f"{PREFIX}MAX_UNAVAILABLE": found}).max_unavailable == text


def test_each_variable_is_a_setting_of_the_operator(render: Rendered) -> None:
    variables = [one["name"] for one in operator_pod(render())["containers"][0]["env"]]
    assert {name.removeprefix(PREFIX).lower() for name in variables} == set(OperatorSettings.model_fields)


def test_images_have_registry_and_tag(render: Rendered) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert operator_pod(render())["containers"][0]["image"] == f"tussock-operator:{version}"
    defaults = {one["name"]: one.get("value", "") for one in operator_pod(render())["containers"][0]["env"]}
    assert re.fullmatch(r".+:RELEASE\.[0-9TZ-]+", defaults[f"{PREFIX}MINIO_IMAGE"]), "a release, and no moving tag"
    objects = render(image={"registry": "registry.example/x", "tag": "9", "minioTag": "m"})
    container = operator_pod(objects)["containers"][0]
    assert container["image"] == "registry.example/x/tussock-operator:9"
    named = {one["name"].removeprefix(PREFIX): one.get("value") for one in container["env"]}
    assert named["NODE_IMAGE"] == "registry.example/x/tussock-node:9"
    assert named["SPARK_IMAGE"] == "registry.example/x/tussock-spark:9"
    assert named["MINIO_IMAGE"] == "registry.example/x/minio/minio:m"


def test_named_namespaces_give_no_right_on_the_cluster(render: Rendered) -> None:
    objects = render(watchNamespaces=["a", "b"])
    assert not [kind for kind, _ in objects if kind.startswith("ClusterRole")]
    assert [kind for kind, _ in objects].count("RoleBinding") == 2  # by name, which "a" and "b" share, and the Lease's
    assert operator_pod(objects)["containers"][0]["env"][3] == {"name": f"{PREFIX}NAMESPACES", "value": "a,b"}


def test_no_rule_has_a_wildcard(render: Rendered) -> None:
    for (kind, name), one in {**render(), **render(watchNamespaces=["a"])}.items():
        if kind.endswith("Role"):
            assert "*" not in json.dumps(one["rules"]), name


def test_a_store_with_tls_has_a_monitor_that_shows_a_certificate(render: Rendered) -> None:
    """The monitor has the secret and the name in every meta node's certificate; ports tell the monitors apart."""
    named = [{"namespace": "data", "name": "shop"}, {"namespace": "b", "name": "own", "secretName": "mine"}]
    objects = render(metrics={"podMonitors": True, "interval": "30s", "tlsStores": named})
    [plain] = objects["PodMonitor", "r-operator-meta"]["spec"]["podMetricsEndpoints"]
    by_store = {"sourceLabels": ["__meta_kubernetes_pod_label_tussock_dev_store"], "targetLabel": "store"}
    assert plain == {"port": "http", "interval": "30s", "relabelings": [by_store]}
    found = objects["PodMonitor", "shop-meta"]
    store = store_with({"managed": {}})
    assert found["metadata"]["namespace"] == "data" == store.namespace
    labels = pod_templates("minimal")["Deployment/shop-meta"]["metadata"]["labels"]
    assert found["spec"]["selector"]["matchLabels"].items() <= labels.items()
    [endpoint] = found["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["scheme"]) == (web_port(store), "https")
    assert endpoint["relabelings"] == [by_store]
    [own] = objects["PodMonitor", "r-operator"]["spec"]["podMetricsEndpoints"]
    assert own["honorLabels"], "else the namespace of each resource would be that of the operator's pod"
    assert labels["tussock.dev/store"] == store.name
    secret = tls_secret(store, "client-reader")
    assert endpoint["tlsConfig"] == {
        "serverName": server_name(store),
        "ca": {"secret": {"name": secret, "key": "ca.crt"}},
        "cert": {"secret": {"name": secret, "key": "tls.crt"}},
        "keySecret": {"name": secret, "key": "tls.key"},
    }
    [endpoint] = objects["PodMonitor", "own-meta"]["spec"]["podMetricsEndpoints"]
    assert endpoint["tlsConfig"]["keySecret"]["name"] == "mine"


@pytest.mark.parametrize("case", ["suspended", "procedures", "identity"])
def test_each_node_of_a_service_has_a_monitor_and_no_worker_has(render: Rendered, case: str) -> None:
    """By port `http` without TLS; with it a named service has its monitor, which knows the name in the certificate."""
    store, compute = SERVICE_CASES[case]
    with_tls = has_tls(store)
    named = {"namespace": "data", "name": compute.name, "store": store.name}
    if store.spec.tls.mode == "secret":
        named["secretName"] = "for-prometheus"
    objects = render(metrics={"podMonitors": True, "tlsServices": [named]})
    monitor = objects["PodMonitor", "bank-service" if with_tls else "r-operator-services"]["spec"]
    chosen = monitor["selector"]["matchLabels"].items()
    found = children_of(case)
    template = found.node["spec"]["template"]
    assert chosen <= template["metadata"]["labels"].items()
    if found.workers:
        assert not chosen <= found.workers["spec"]["template"]["metadata"]["labels"].items()
    [endpoint] = monitor["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    if with_tls:
        assert endpoint["scheme"] == "https"
        assert endpoint["tlsConfig"]["serverName"] == service_server_name(compute, store)
        assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == named.get("secretName", "shop-client-reader-tls")


@pytest.mark.parametrize("watched", [[], ["a", "b"]])
def test_drivers_of_jobs_have_a_monitor_and_executors_have_none(render: Rendered, watched: list[str]) -> None:
    """By a port without TLS, whatever the store has; series have the names of store and job."""
    spec = render(metrics={"podMonitors": True}, watchNamespaces=watched)["PodMonitor", "r-operator-jobs"]["spec"]
    assert spec["namespaceSelector"] == ({"matchNames": watched} if watched else {"any": True})
    store, compute = CASES["production"]
    assert has_tls(store)
    *others, driver = manifests_of("production")
    chosen = spec["selector"]["matchLabels"].items()
    assert chosen <= driver["metadata"]["labels"].items()
    [template] = [
        json.loads(one["data"]["executor-pod.json"]) for one in others if "executor-pod.json" in one.get("data", {})
    ]
    assert not chosen <= template["metadata"]["labels"].items()
    [endpoint] = spec["podMetricsEndpoints"]
    assert {"containerPort": STATUS_PORT, "name": endpoint["port"], "protocol": "TCP"} in driver["spec"]["containers"][
        0
    ]["ports"]
    assert shown_labels(endpoint, driver) == {"store": store.name, "compute": compute.name}
    *_, elsewhere = manifests_of("elsewhere")
    assert shown_labels(endpoint, elsewhere) == {"store": "data/shop", "compute": "totals"}


def shown_labels(endpoint: dict[str, Any], pod: dict[str, Any]) -> dict[str, str]:
    """The labels that Prometheus gives the series of a pod."""
    prefix, labels = "__meta_kubernetes_pod_label_", pod["metadata"]["labels"]
    known = {prefix + re.sub(r"[^a-zA-Z0-9_]", "_", name): value for name, value in labels.items()}
    shown = {}
    for rule in endpoint["relabelings"]:
        joined = rule.get("separator", ";").join(known.get(name, "") for name in rule["sourceLabels"])
        if found := re.fullmatch(rule.get("regex", "(.*)"), joined):
            shown[rule["targetLabel"]] = found[1]
    return shown


def test_only_named_meta_nodes_may_ask_about_tokens(render: Rendered) -> None:
    """Nobody may by default, and those whom the values name may do nothing else."""
    assert not [one for one in render() if "token-reviews" in one[1]]
    given = [{"namespace": "data", "meta": "shop"}, {"namespace": "team", "serviceAccount": "buckets"}]
    found = render(tokenReviews=given)
    [(_, name)] = [one for one in found if one[0] == "ClusterRole" and "token-reviews" in one[1]]
    assert found["ClusterRole", name]["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]}
    ]
    binding = found["ClusterRoleBinding", name]
    assert binding["roleRef"]["name"] == name
    assert [(one["namespace"], one["name"]) for one in binding["subjects"]] == [
        ("data", meta_name("shop")),
        ("team", "buckets"),
    ]


def test_the_dashboard_asks_for_documented_metrics_only() -> None:
    """A panel over a metric that is not exported stays empty for ever."""
    board = json.loads((CHART / "dashboards/tussock.json").read_text())
    pages = ("metrics.md", "operator/reconciliation.md", "spark/watching.md")
    documents = "".join((ROOT / "docs" / page).read_text() for page in pages)
    asked = set(re.findall(r"\btussock_\w+", json.dumps(board)))
    assert len(asked) > 20
    for name in sorted(asked):
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        assert base in documents or base.removesuffix("_total") in documents, name


def test_prometheus_understands_the_dashboard(tmp_path: Path) -> None:
    """Each expression, with what Grafana puts in for its variables."""
    board = json.loads((CHART / "dashboards/tussock.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    rules = [
        {"record": f"tussock:{number}", "expr": expression.replace("$__rate_interval", "1m")}
        for number, expression in enumerate(asked)
    ]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(asked)} rules found" in Promtool().run_well("check", "rules", str(file))


def test_every_panel_has_a_description() -> None:
    board = json.loads((CHART / "dashboards/tussock.json").read_text())
    panels = [one for one in board["panels"] if one["type"] != "row"]
    assert all(one["description"] and one["targets"] for one in panels)
    places = [one["gridPos"] for one in panels]
    taken = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(taken) == len(set(taken)), "panels lie on each other"
    assert max(x for x, _ in taken) < 24


def test_the_table_of_values_is_whole() -> None:
    """Each value of `values.yaml` stands in README.md, and each name there is a value."""
    text = (CHART / "README.md").read_text()
    named = {name for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    groups = ("image", "crds", "upgrade", "log", "metrics", "dashboard")
    mine = {f"{group}.{key}" for group in groups for key in values[group]} | (set(values) - set(groups))
    assert named == mine
