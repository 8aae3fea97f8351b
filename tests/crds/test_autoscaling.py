"""The autoscalers of `examples/kubernetes/autoscaling`: their schemas, their metrics, and what they scale."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from cluster.parts import external_metrics
from support.kubernetes.kubectl import Kubectl
from support.kubernetes.promtool import Promtool

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples/kubernetes/autoscaling"
KEDA = "github.com/kedacore/keda/v2@v2.21.0"
STORE = 'namespace="default",store="metrics"'
OTHER = 'namespace="default",store="other"'
SCALERS = {"keda": "minReplicaCount", "hpa": "minReplicas"}
"""Each autoscaler, and its field for the fewest."""


def read(name: str) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return body


def keda_query() -> str:
    query: str = read("keda")["spec"]["triggers"][0]["metadata"]["query"]
    return query


def adapter_query() -> str:
    """As the adapter asks for the store of `hpa.yaml`."""
    [rule] = read("prometheus-adapter")["rules"]["external"]
    query: str = rule["metricsQuery"]
    return query.replace("<<.LabelMatchers>>", STORE)


@pytest.mark.parametrize("name", SCALERS)
def test_they_scale_a_compactor_by_its_slots(name: str) -> None:
    """The one that the store of `scale.yaml` makes, which leaves the number to them."""
    spec = read(name)["spec"]
    crd = yaml.safe_load((ROOT / "crds/compactors.yaml").read_text(encoding="utf-8"))
    [version] = crd["spec"]["versions"]
    assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"
    target = spec["scaleTargetRef"]
    assert target["apiVersion"] == f"{crd['spec']['group']}/{version['name']}"
    assert target["kind"] == crd["spec"]["names"]["kind"]
    bodies = list(yaml.safe_load_all((ROOT / "examples/kubernetes/scale.yaml").read_text(encoding="utf-8")))
    [store] = [one for one in bodies if one["kind"] == "StateStore"]
    assert target["name"] == store["metadata"]["name"]
    assert "replicas" not in store["spec"]["compactor"]
    assert spec[SCALERS[name]] == 1, "without any slot the leader begins nothing, not even what it does itself"
    each = spec["triggers"][0]["metadata"]["threshold"] if name == "keda" else None
    each = each or spec["metrics"][0]["external"]["target"]["averageValue"]
    assert int(each) == store["spec"]["compactor"]["slots"]


def test_they_ask_for_documented_metrics() -> None:
    documented = set(re.findall(r"^\| `(tussock_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    for query in (keda_query(), adapter_query()):
        assert set(re.findall(r"\btussock_\w+", query)) <= documented
    [rule] = read("prometheus-adapter")["rules"]["external"]
    assert rule["seriesQuery"] in documented
    asked = read("hpa")["spec"]["metrics"][0]["external"]["metric"]
    assert asked == {"name": rule["name"]["as"], "selector": {"matchLabels": {"store": "metrics"}}}


def test_the_node_of_the_tests_serves_the_metric_of_that_rule() -> None:
    """So the autoscaler of the end-to-end tests reads what one beside a Prometheus does."""
    [rule] = read("prometheus-adapter")["rules"]["external"]
    assert rule["name"]["as"] == external_metrics.METRIC
    assert set(re.findall(r"\btussock_\w+", adapter_query())) == set(external_metrics.SUMMED)
    names = {"tussock_meta_compaction_backlog_tasks": "", "tussock_meta_compaction_tasks": 'kind="l0"'}
    kinds = [f"{name}{{{labels}}} 3" for name, labels in names.items()]
    text = "\n".join([*kinds, 'tussock_meta_compaction_tasks{kind="level"} 1', "tussock_meta_compaction_slots 9", ""])
    assert external_metrics.tasks_wanted(text) == 7


@pytest.mark.parametrize(
    "asked",
    ["/apis", "/namespaces/x/another?labelSelector=store%3Dmetrics", f"/namespaces/x/{external_metrics.METRIC}"],
)
def test_the_node_of_the_tests_serves_no_other_metric(asked: str) -> None:
    """Nor one without a store's name."""
    with pytest.raises(external_metrics.Unknown, match="with the label store=NAME"):
        external_metrics.answer(f"/apis/{external_metrics.GROUP_VERSION}{asked}", client.CoreV1Api())


@pytest.mark.parametrize("query", [keda_query(), adapter_query()], ids=["keda", "adapter"])
def test_tasks_that_wait_and_tasks_that_run_are_wanted(query: str, tmp_path: Path) -> None:
    """Of this store alone, from its leader and its followers; also while none runs, which leaves no series."""
    series = {
        f'tussock_meta_compaction_backlog_tasks{{{STORE},pod="leader"}}': "3 3 0",
        f'tussock_meta_compaction_backlog_tasks{{{STORE},pod="follower"}}': "0 0 0",
        f'tussock_meta_compaction_backlog_tasks{{{OTHER},pod="leader"}}': "9 9 9",
        f'tussock_meta_compaction_tasks{{{STORE},pod="leader",kind="l0"}}': "stale 2 1",
        f'tussock_meta_compaction_tasks{{{STORE},pod="leader",kind="level"}}': "stale 2 stale",
        f'tussock_meta_compaction_tasks{{{OTHER},pod="leader",kind="l0"}}': "9 9 9",
    }
    labels = '{store="metrics"}' if "by (store)" in query else "{}"
    asked = [
        {"expr": query, "eval_time": f"{minute}m", "exp_samples": [{"labels": labels, "value": value}]}
        for minute, value in enumerate((3, 7, 1))
    ]
    Promtool().evaluate(tmp_path, {"groups": []}, series, promql_expr_test=asked)


@pytest.fixture(scope="module")
def keda_definition(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with KEDA's definition of a ScaledObject, out of its Go module."""
    go = shutil.which("go")
    if not go:
        pytest.skip("no Go on the PATH, by which KEDA's definitions are fetched")
    got = subprocess.run([go, "mod", "download", "-json", KEDA], capture_output=True, text=True, timeout=300, cwd="/")
    if got.returncode:
        pytest.skip(f"Go could not fetch {KEDA}: {got.stdout.strip()[-300:]}{got.stderr.strip()[-300:]}")
    folder = tmp_path_factory.mktemp("keda")
    shutil.copy(Path(json.loads(got.stdout)["Dir"]) / "config/crd/bases/keda.sh_scaledobjects.yaml", folder)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_an_api_server_with_keda_accepts_both(kubectl: Kubectl, keda_definition: Path) -> None:
    """Without a warning, and without a field that its schema does not have."""
    kubectl.define(keda_definition)
    for name, kind in {"keda": "ScaledObject", "hpa": "HorizontalPodAutoscaler"}.items():
        answer = kubectl(
            "create", "--dry-run=server", "--validate=strict", "-o", "yaml", "-f", str(FOLDER / f"{name}.yaml")
        )
        assert (answer.code, answer.error) == (0, "")
        assert yaml.safe_load(answer.out)["kind"] == kind
