"""The listener's reports of micro-batches, from progress as Spark reports it."""

import importlib.util
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from support import inside
from tussock.compute.driver.answers import answer_on
from tussock.compute.driver.scale import Scaler
from tussock.compute.driver.watch import Watch
from tussock.compute.spark.batches import listener
from tussock.compute.spark.batches.listener import TussockListener
from tussock.statestore.base.service_logs import JsonFormatter
from tussock.statestore.base.system import RealSystem

QUERY = "5f0a2c1e-7a6b-4c55-9d2a-0d3a2b1c4e5f"
EPOCH = 117655851395907584
DOCS = Path(__file__).resolve().parents[3] / "docs" / "spark" / "watching.md"


def progress(batch: int, end: str, rows: int = 20, written: int = 10) -> QueryProgressEvent:
    """A batch as Spark 4 reports it."""
    source = {
        "description": "tussock",
        "startOffset": None,
        "endOffset": end,
        "latestOffset": None,
        "numInputRows": rows,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
        "metrics": {},
    }
    return QueryProgressEvent(
        StreamingQueryProgress.fromJson(
            {
                "id": QUERY,
                "runId": "6f0a2c1e-7a6b-4c55-9d2a-0d3a2b1c4e5f",
                "name": "copy",
                "timestamp": "2026-11-21T18:00:00.000Z",
                "batchId": batch,
                "batchDuration": 150,
                "durationMs": {"addBatch": 100, "triggerExecution": 150},
                "eventTime": {},
                "stateOperators": [],
                "sources": [source],
                "sink": {"description": "tussock", "numOutputRows": written, "metrics": {}},
                "numInputRows": rows,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
                "observedMetrics": {},
            }
        )
    )


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics that count from zero."""
    inside.forget_stream_metrics(monkeypatch)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The log as a driver of the operator writes it."""
    return [json.loads(JsonFormatter().format(record)) for record in caplog.records]


def ours(epoch: int) -> str:
    return json.dumps({"epoch": epoch, "start": 0, "snapshot": False, "initial": False})


@pytest.mark.usefixtures("fresh")
def test_each_batch_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """It has the batch's rows, its steps and the epoch that it read; other sources have no epoch."""
    caplog.set_level(logging.INFO, "tussock.compute.streams")
    told = TussockListener()
    told.onQueryProgress(progress(7, ours(EPOCH)))
    told.onQueryProgress(progress(8, "12", written=-1))
    first, second = lines(caplog)
    assert (first["event"], first["query"], first["name"], first["batch"]) == ("batch", QUERY, "copy", 7)
    assert (first["input_rows"], first["output_rows"], first["read_epoch"]) == (20, 10, EPOCH)
    assert first["steps_ms"] == {"addBatch": 100, "triggerExecution": 150}
    assert (second["batch"], second.get("output_rows"), second.get("read_epoch")) == (8, None, None)


@pytest.mark.usefixtures("fresh")
def test_a_failed_stream_is_an_error_of_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The trace is only in Spark's log."""
    caplog.set_level(logging.INFO, "tussock.compute.streams")
    run = "6f0a2c1e-7a6b-4c55-9d2a-0d3a2b1c4e5f"
    ended = {"id": QUERY, "runId": run, "exception": "it broke\n  at a.b.C", "errorClassOnException": None}
    TussockListener().onQueryTerminated(QueryTerminatedEvent.fromJson(ended))
    (line,) = lines(caplog)
    assert (line["level"], line["event"], line["error"]) == ("error", "stream failed", "it broke")


@pytest.mark.usefixtures("fresh")
def test_every_metric_of_streams_is_documented() -> None:
    """`docs/spark/watching.md` has exactly one row for each metric, with its type and its labels."""
    from prometheus_client.metrics import MetricWrapperBase

    kept = [value for value in vars(listener.Metrics()).values() if isinstance(value, MetricWrapperBase)]
    found = {}
    for metric in kept:
        (family,) = metric.describe()
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = (family.type, list(metric._labelnames))
    rows = re.findall(r"^\| `(tussock_\w+)` \| (\w+) \| ?([^|]*?) ?\|", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows} == found


@pytest.mark.usefixtures("fresh")
def test_the_driver_serves_the_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All listeners together; without a listener, or the library, there are none."""
    watch = Watch(Scaler(tmp_path / "executors", None), RealSystem(), is_stream=True)
    assert answer_on("/metrics", watch)[0] == 404
    for number in range(2):
        TussockListener().onQueryProgress(progress(number, ours(EPOCH + number)))
    code, body = answer_on("/metrics", watch)
    assert code == 200
    found = dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
    assert found['tussock_stream_batches_total{query="copy"}'] == "2.0"
    assert found['tussock_stream_input_rows_total{query="copy"}'] == "40.0"
    assert found['tussock_stream_output_rows_total{query="copy"}'] == "20.0"
    assert float(found['tussock_stream_read_epoch{query="copy"}']) == float(EPOCH + 1)
    assert found['tussock_stream_step_seconds_count{query="copy",step="addBatch"}'] == "2.0"
    inside.forget_stream_metrics(monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    TussockListener().onQueryProgress(progress(9, ours(EPOCH)))
    assert listener.metrics_text() is None
