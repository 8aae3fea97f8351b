"""The alerts of the chart: each answers a documented question, over documented metrics, and fires when it should."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from support.kubernetes.promtool import Promtool
from tussock.operator.certificates.renewal import SETTLE
from tussock.operator.manifests.certificates import LEAF_SECONDS

ROOT = Path(__file__).resolve().parents[2]
RULES = yaml.safe_load((ROOT / "charts/tussock/alerts/rules.yaml").read_text())
VALUES = yaml.safe_load((ROOT / "charts/tussock/values.yaml").read_text())["metrics"]
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
BASE = "https://git.example/tussock/blob/main/"
Rendered = Callable[..., dict[tuple[str, str], dict]]
Rules = dict[str, dict[str, Any]]


def rules_of(objects: dict[tuple[str, str], dict]) -> Rules:
    """The rendered rules by name."""
    spec = objects["PrometheusRule", "r-operator"]["spec"]
    return {rule["alert"]: rule for group in spec["groups"] for rule in group["rules"]}


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# --- Rendered ----------------------------------------------------------------------------------------------------


def test_alerts_are_off_by_default(render: Rendered) -> None:
    assert not [kind for kind, _ in render() if kind == "PrometheusRule"]
    assert [kind for kind, _ in render(metrics={"rules": True})].count("PrometheusRule") == 1


def test_each_alert_has_its_words_and_a_section_that_exists(render: Rendered) -> None:
    """The runbook is a section of `docs/alerts.md`, behind the address that the values give."""
    anchors = {slug(found) for found in re.findall(r"^#+ (.*)$", (ROOT / "docs/alerts.md").read_text(), re.MULTILINE)}
    for base in ("", BASE):
        rules = rules_of(render(metrics={"rules": True, "runbooks": base, "labels": {"release": "p"}}))
        assert rules.keys() == ALERTS.keys()
        for name, rule in rules.items():
            assert rule["labels"]["severity"] in ("critical", "warning", "info")
            words = rule["annotations"]
            assert words.keys() == {"summary", "description", "runbook_url"}
            assert words["summary"] == ALERTS[name]["summary"], "Helm must leave Prometheus' templates alone"
            assert words["description"] == ALERTS[name]["description"]
            page, _, anchor = words["runbook_url"].removeprefix(base).partition("#")
            assert page == "docs/alerts.md"
            assert anchor in anchors


def test_thresholds_are_values_and_alerts_can_be_left_out(render: Rendered) -> None:
    """No name of a threshold remains in an expression; each threshold is of one."""
    rules = rules_of(render(metrics={"rules": True}))
    assert not [name for name, rule in rules.items() if "$" in rule["expr"]]
    used = {name for rule in ALERTS.values() for name in re.findall(r"\$(\w+)", rule["expr"])}
    assert used == VALUES["thresholds"].keys()
    given = {"rules": True, "thresholds": {"lagSeconds": 12.5}, "withoutAlerts": ["TussockNoCommits"]}
    rules = rules_of(render(metrics=given))
    assert rules["TussockStreamLags"]["expr"].endswith("> 12.5")
    assert rules.keys() == ALERTS.keys() - {"TussockNoCommits"}


def test_the_rules_have_the_labels_by_which_prometheus_picks_them(render: Rendered) -> None:
    objects = render(metrics={"rules": True, "labels": {"release": "p"}})
    assert objects["PrometheusRule", "r-operator"]["metadata"]["labels"]["release"] == "p"


# --- Documented --------------------------------------------------------------------------------------------------


def test_alerts_ask_for_documented_metrics_only() -> None:
    """An alert over a metric that is not exported never comes."""
    documents = (ROOT / "docs/metrics.md").read_text() + (ROOT / "docs/operator/reconciliation.md").read_text()
    documented = set(re.findall(r"^\| `(tussock_\w+)`", documents, re.MULTILINE))
    for name, rule in ALERTS.items():
        asked = set(re.findall(r"\btussock_\w+", rule["expr"]))
        assert asked, name
        assert {re.sub(r"_(bucket|count|sum)$", "", one) for one in asked} <= documented, name


def test_each_line_of_what_to_watch_has_an_alert_over_its_metric() -> None:
    """And each alert has a line."""
    section = (ROOT / "docs/metrics.md").read_text().split("## What to watch\n")[1]
    lines = re.findall(r"^\| .*\? \| `(.*)` \| .* \| \[(\w+)\]\(alerts\.md#(\w+)\) \|$", section, re.MULTILINE)
    assert len(lines) == section.count("\n| ") - 1, "a line without an alert"
    assert sorted(name for _, name, _ in lines) == sorted(ALERTS)
    for expression, name, anchor in lines:
        assert anchor == name.lower()
        [metric] = set(re.findall(r"\btussock_\w+", expression))
        assert metric in ALERTS[name]["expr"], name


def test_thresholds_and_alerts_are_explained() -> None:
    """Each threshold has a row with its default, each alert a section."""
    text = (ROOT / "docs/alerts.md").read_text()
    rows = {name: float(default) for name, default in re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", text, re.MULTILINE)}
    assert rows == VALUES["thresholds"]
    assert sorted(re.findall(r"^### (\w+)$", text, re.MULTILINE)) == sorted(ALERTS)


def test_certificates_are_renewed_before_their_alert() -> None:
    """At two thirds of their life, and a CA takes a day to change."""
    assert VALUES["thresholds"]["certificateSeconds"] + SETTLE.total_seconds() < LEAF_SECONDS / 3


# --- Evaluated by Prometheus' rules ------------------------------------------------------------------------------


class Case(NamedTuple):
    """Series that make an alert, in Prometheus' notation of tests with a value each minute, and when it comes."""

    series: dict[str, str]
    labels: dict[str, str]
    minute: int
    """At which it is there."""


STORE = 'namespace="data",store="shop"'
SHOP = {"namespace": "data", "store": "shop"}
JOB = {"namespace": "data", "name": "totals"}
RESOURCE = 'kind="Compute",namespace="data",name="totals"'
CASES = {
    # Two nodes of a store, neither of which leads; another store is well.
    "TussockNoLeader": Case(
        {
            f'tussock_meta_leader{{{STORE},pod="a"}}': "0x10",
            f'tussock_meta_leader{{{STORE},pod="b"}}': "0x10",
            'tussock_meta_leader{namespace="data",store="well",pod="c"}': "1x10",
        },
        SHOP,
        2,
    ),
    "TussockReplicaBehind": Case(
        {f'tussock_meta_version_age_seconds{{{STORE},pod="a"}}': "61x20"}, {**SHOP, "pod": "a"}, 6
    ),
    # The time of a test begins at 0, so a store that committed at 1 s is late at 61 min; one that never did is not.
    "TussockNoCommits": Case(
        {
            f"tussock_meta_committed_timestamp_seconds{{{STORE}}}": "1x80",
            'tussock_meta_committed_timestamp_seconds{namespace="data",store="new"}': "0x80",
        },
        SHOP,
        67,
    ),
    "TussockCommitsSlow": Case(
        {
            f'tussock_meta_call_seconds_bucket{{{STORE},method="Commit",le="1"}}': "0x30",
            f'tussock_meta_call_seconds_bucket{{{STORE},method="Commit",le="5"}}': "0+9x30",
            f'tussock_meta_call_seconds_bucket{{{STORE},method="Commit",le="+Inf"}}': "0+9x30",
            f'tussock_meta_call_seconds_bucket{{{STORE},method="Pin",le="+Inf"}}': "0+900x30",
        },
        SHOP,
        20,
    ),
    "TussockWritersStalled": Case(
        {f'tussock_meta_table_stalled{{{STORE},pod="a",table="kv"}}': "1x5"}, {**SHOP, "table": "kv"}, 2
    ),
    "TussockCompactionBehind": Case(
        {
            f'tussock_meta_table_l0_runs{{{STORE},table="kv"}}': "49x30",
            f'tussock_meta_table_l0_runs{{{STORE},table="fine"}}': "48x30",
        },
        {**SHOP, "table": "kv"},
        16,
    ),
    "TussockCallersRefused": Case(
        {
            f'tussock_meta_calls_total{{{STORE},method="Commit",code="PERMISSION_DENIED"}}': "0+1x30",
            f'tussock_meta_calls_total{{{STORE},method="Commit",code="OK"}}': "0+9x30",
        },
        {**SHOP, "method": "Commit", "code": "PERMISSION_DENIED"},
        15,
    ),
    "TussockServiceFails": Case(
        {f'tussock_meta_calls_total{{{STORE},method="Pin",code="INTERNAL"}}': "0+1x30"}, {**SHOP, "method": "Pin"}, 10
    ),
    "TussockOldPin": Case(
        {
            f"tussock_meta_oldest_pin_timestamp_seconds{{{STORE}}}": "1x1500",
            'tussock_meta_oldest_pin_timestamp_seconds{namespace="data",store="none"}': "0x1500",
        },
        SHOP,
        1450,
    ),
    "TussockVacuumOverdue": Case(
        {
            f"tussock_meta_vacuum_timestamp_seconds{{{STORE}}}": "1x120",
            f"tussock_meta_vacuum_failed{{{STORE}}}": "0x120",
        },
        SHOP,
        95,
    ),
    "TussockBucketRequests": Case(
        {
            f'tussock_meta_bucket_requests_total{{{STORE},pod="a",operation="list"}}': "0+1800x150",
            f'tussock_meta_bucket_requests_total{{{STORE},pod="b",operation="get"}}': "0+600x150",
            f'tussock_meta_log_entries_total{{{STORE},pod="a"}}': "0+600x150",
        },
        SHOP,
        140,
    ),
    "TussockProblem": Case(
        {
            f'tussock_meta_problems{{{STORE},severity="error"}}': "1x10",
            'tussock_meta_problems{namespace="data",store="well",severity="warning"}': "3x10",
        },
        SHOP,
        6,
    ),
    "TussockResourceDegraded": Case(
        {f'tussock_resource_degraded{{{RESOURCE},reason="Failed",pod="operator-1"}}': "1x20"},
        {**JOB, "kind": "Compute", "reason": "Failed"},
        11,
    ),
    "TussockStreamLags": Case({f"tussock_resource_lag_seconds{{{RESOURCE}}}": "0+60x40"}, JOB, 22),
    "TussockBackupOld": Case({f"tussock_resource_backup_age_seconds{{{RESOURCE}}}": "93601x20"}, JOB, 6),
    "TussockCopyOld": Case({f"tussock_resource_copy_age_seconds{{{RESOURCE}}}": "93601x70"}, JOB, 61),
    "TussockCertificateEnds": Case(
        {f"tussock_resource_certificate_end_timestamp_seconds{{{RESOURCE}}}": "1209700x80"},
        {**JOB, "kind": "Compute"},
        65,
    ),
    "TussockVolumeAlmostFull": Case(
        {
            f"tussock_resource_checkpoint_used_ratio{{{RESOURCE}}}": "0.96x10",
            'tussock_resource_disk_used_ratio{kind="StateStore",namespace="data",name="fine"}': "0.95x10",
        },
        {**JOB, "kind": "Compute"},
        2,
    ),
    "TussockJobRestarts": Case({f"tussock_resource_restarts_total{{{RESOURCE}}}": "0x60 4x30"}, JOB, 64),
    # Restarts that end with their pod are none again.
    "TussockContainersRestart": Case(
        {
            f"tussock_resource_container_restarts{{{RESOURCE}}}": "2x60 6x30",
            'tussock_resource_container_restarts{kind="Meta",namespace="data",name="s"}': "9x60 0x30",
        },
        {**JOB, "kind": "Compute"},
        64,
    ),
    "TussockNoOperator": Case({'tussock_operator_leader{pod="standby"}': "0x10"}, {}, 6),
    "TussockOperatorFails": Case(
        {'tussock_operator_reconcile_errors_total{kind="Meta"}': "0+1x30"}, {"kind": "Meta"}, 20
    ),
}


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    return Promtool()


def test_prometheus_takes_the_rules(promtool: Promtool, render: Rendered, tmp_path: Path) -> None:
    """And finds nothing to complain about in them."""
    file = tmp_path / "rules.json"
    objects = render(metrics={"rules": True, "runbooks": BASE})
    file.write_text(json.dumps(objects["PrometheusRule", "r-operator"]["spec"]))
    told = promtool.run_well("check", "rules", "--lint=all", "--lint-fatal", str(file))
    assert f"{len(ALERTS)} rules found" in told


def test_every_alert_has_a_case() -> None:
    assert CASES.keys() == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_comes_when_it_should_and_not_before(
    name: str, promtool: Promtool, render: Rendered, tmp_path: Path
) -> None:
    """With the labels of what it is about alone, of several series too; and its words use no other label."""
    case = CASES[name]
    rules = render(metrics={"rules": True})["PrometheusRule", "r-operator"]["spec"]
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        del rule["annotations"]  # what they become would be compared to the letter, with every figure in it
    firing = {"exp_labels": {"severity": ALERTS[name]["severity"], **case.labels}}
    asked = [
        {"eval_time": "0m", "alertname": name, "exp_alerts": []},
        {"eval_time": f"{case.minute}m", "alertname": name, "exp_alerts": [firing]},
    ]
    promtool.evaluate(tmp_path, rules, case.series, alert_rule_test=asked)
    words = ALERTS[name]["summary"] + ALERTS[name]["description"]
    assert set(re.findall(r"[$]labels[.](\w+)", words)) <= case.labels.keys()
