"""What a node tells of itself: the page and its status, metrics, probes, and the log."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.applications.serve_process import ServeProcess
from tussock.compute import procedures as ps

DOCS = Path(__file__).resolve().parents[4] / "docs"
SECONDS = 60


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A node that was asked for three batches, one of which failed, and for one call."""
    with ServeProcess((tmp_path_factory.mktemp("page") / "store").as_uri()) as process:
        with ps.Client(process.address) as client:
            for number in (1, -1, 2):
                client.submit("take", [{"n": number}]).exception(SECONDS)
            client.call("total", timeout=SECONDS)
        yield process


def test_the_status_shows_graph_windows_trace_and_failures(node: ServeProcess) -> None:
    """In the figures of the requests that were made."""
    status = node.status()
    procedures = {one["name"]: one for one in status["procedures"]}
    assert procedures["take"] == {"name": "take", "border": True, "consumes": [], "emits": ["taken"], "last_batch": 3}
    assert procedures["add"]["consumes"] == ["taken"]
    (window,) = status["windows"]
    assert (window["name"], window["visible"], window["staged"]) == ("newest", 2, 0)
    assert status["trace"] == [["take", 1], ["add", 1], ["take", 3], ["add", 3], ["total", None]]
    (failure,) = status["failures"]
    assert (failure["kind"], failure["error"]) == ("submit", "ProcedureError")
    assert status["records"] == 3


def test_every_field_of_the_status_is_documented(node: ServeProcess) -> None:
    """`docs/service.md` names each."""
    page = (DOCS / "service.md").read_text(encoding="utf-8")
    assert [name for name in node.status() if f"`{name}`" not in page] == []


def test_every_metric_is_documented(node: ServeProcess) -> None:
    """`docs/metrics.md` has exactly one row for each, with its type and its labels."""
    found = {}
    for family in text_string_to_metric_families(node.get("/metrics")[1]):
        if family.name.startswith("tussock_application"):
            shown = family.name + ("_total" if family.type == "counter" else "")
            labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
            found[shown] = (family.type, labels)
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tussock_application\w*)` \| (\w+) \| ?([^|]*?) ?\|", text, re.MULTILINE)
    documented = {
        name: (kind, sorted(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in rows
        # Those of flows are in `test_flow_status.py`.
        if "_stream_" not in name
    }
    # Nobody was refused, so that one has no sample and no labels yet.
    assert documented.pop("tussock_application_calls_refused_total") == ("counter", ["code"])
    assert found.pop("tussock_application_calls_refused_total")[0] == "counter"
    assert documented == found


def test_metrics_count_what_was_done(node: ServeProcess) -> None:
    """Requests by kind and how they ended."""
    text = node.get("/metrics")[1]
    for line in (
        'tussock_application_requests_total{code="OK",kind="submit"} 2.0',
        'tussock_application_requests_total{code="ABORTED",kind="submit"} 1.0',
        'tussock_application_last_batch{procedure="take"} 3.0',
        'tussock_application_window_tuples{state="visible",window="newest"} 2.0',
    ):
        assert line in text
    kinds = set(re.findall(r'tussock_application_requests_total\{code="OK",kind="(\w+)"', text))
    node_kinds = {"status", "pause", "resume", "drain"}
    assert kinds == node_kinds | {"submit", "call", "trace", "window_rows", "stats"}, "none of other layers"


def test_the_page_and_its_files(node: ServeProcess) -> None:
    """All that the page names is there, and nothing else of the disk is."""
    code, page = node.get("/")
    assert code == 200
    for name in re.findall(r'"(static/[^"]+)"', page):
        assert node.get(f"/{name}")[0] == 200
    for path in ("/static/../settings.py", "/static/settings.py", "/nothing", "/static/"):
        assert node.get(path)[0] == 404
    assert node.get("/readyz") == (200, "ok\n")
