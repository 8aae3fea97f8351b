"""`/metrics`: names and types by Prometheus' conventions, all of them documented, and right figures."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from support.service.meta_process import MetaProcess
from support.service.statuses import bare_status
from tussock.meta.server.status.counters import ReplicaMetrics
from tussock.meta.server.status.document import LossStatus, ServiceStatus, TableStatus
from tussock.meta.server.status.metrics import OTHER_TABLES, TABLES_MAX, StatusCollector
from tussock.statestore import connect

DOCS = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
UNITS = ("_seconds", "_bytes", "_total", "_info")


def scrape(address: str) -> tuple[str, dict[str, Metric]]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    return text, {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    """The value of the one sample with that name and these labels among its own."""
    (found,) = [
        one.value
        for family in families.values()
        for one in family.samples
        if one.name == sample and one.labels.items() >= labels.items()
    ]
    return found


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MetaProcess]:
    """A replica with three epochs of two tables, and a client with a pin."""
    url = (tmp_path_factory.mktemp("metrics") / "store").as_uri()
    # The log is read at the start and not while a test counts requests.
    with MetaProcess(url, "--leader.poll-seconds", "3600", "--leader.lease-seconds", "3600") as process:
        process.wait_until_it_leads()
        with connect(process.url) as store, connect(process.url) as other:
            for name in ("kv", "events"):
                store.create_table(name)
            for number in range(3):
                epoch = store.new_epoch()
                store.table("kv").ingest_batch([(b"%d" % number, b"v" * 100)], epoch)
                store.table("events").ingest_batch([(b"%d" % number, None)], epoch)
                store.commit_epoch(epoch, writer="job", batch_id=number)
            other.wait_epoch(store.committed_epoch, timeout=60)
            with other.pin_snapshot():
                yield process


def test_metrics_count_what_was_done(replica: MetaProcess) -> None:
    """The metrics count what was done to the store."""
    _, families = scrape(replica.http)
    assert value(families, "tussock_meta_commits_total") == 3
    assert value(families, "tussock_meta_log_entry_commits_count") == 3
    assert value(families, "tussock_meta_log_entry_commits_sum") == 3
    assert value(families, "tussock_meta_log_entries_total") >= 5
    assert value(families, "tussock_meta_calls_total", method="Commit", code="OK") == 3
    assert value(families, "tussock_meta_calls_total", method="CreateTable", code="OK") == 2
    assert value(families, "tussock_meta_call_seconds_count", method="Commit") == 3
    assert value(families, "tussock_meta_calls_open", method="Subscribe") == 2
    assert value(families, "tussock_meta_calls_open", method="Commit") == 0
    assert value(families, "tussock_meta_leader") == 1
    assert value(families, "tussock_meta_ready") == 1
    assert value(families, "tussock_meta_term") == 1
    assert value(families, "tussock_meta_tables") == 2
    assert value(families, "tussock_meta_table_rows", table="kv") == 3
    assert value(families, "tussock_meta_table_deletes", table="events") == 3
    assert value(families, "tussock_meta_table_l0_runs", table="kv") == 3
    assert value(families, "tussock_meta_table_stalled", table="kv") == 0
    assert value(families, "tussock_meta_sessions", kind="client") == 2
    assert value(families, "tussock_meta_sessions", kind="compactor") == 0
    assert value(families, "tussock_meta_pins") == 1
    assert value(families, "tussock_meta_writers") == 1
    assert value(families, "tussock_meta_committed_timestamp_seconds") > 1.7e9
    assert value(families, "tussock_meta_committed_bytes_total") == sum(
        value(families, "tussock_meta_table_bytes", table=table) for table in ("kv", "events")
    )
    assert value(families, "tussock_meta_bucket_requests_total", caller="meta", operation="create") >= 5
    assert value(families, "tussock_meta_bucket_bytes_total", caller="meta", operation="create") > 0


def test_names_follow_the_conventions_of_prometheus(replica: MetaProcess) -> None:
    """Base units, `_total` for counters and only for them, one prefix, a type and a help text for each."""
    _, families = scrape(replica.http)
    for name, family in families.items():
        assert re.fullmatch(r"(tussock_meta|process)_[a-z0-9_]+|tussock_meta", name), name
        assert family.documentation, name
        assert family.type in ("counter", "gauge", "histogram", "info"), name
        assert not re.search(r"_(ms|millis|milliseconds|minutes|hours|kb|mb|kib|mib|percent)(_|$)", name), name
        for sample in family.samples:
            assert (family.type == "counter") == sample.name.endswith("_total"), sample.name
            for label in sample.labels:
                assert re.fullmatch(r"[a-z][a-z_]*", label), (name, label)
        if name.endswith("timestamp_seconds"):
            assert family.type == "gauge"


def test_every_metric_is_documented(replica: MetaProcess) -> None:
    """`docs/metrics.md` has exactly one row for each metric, with its type and its labels."""
    _, families = scrape(replica.http)
    found, empty = {}, set()
    for name, family in families.items():
        if not name.startswith("tussock_meta"):
            continue
        shown = name + {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        found[shown] = (family.type, labels)
        if not family.samples:
            empty.add(shown)
    rows = re.findall(
        r"^\| `(tussock_meta\w*)` \| (\w+) \| ?([^|]*?) ?\|", DOCS.read_text(encoding="utf-8"), re.MULTILINE
    )
    documented = {name: (kind, sorted(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented.keys() == found.keys()
    for name, (kind, labels) in found.items():
        assert documented[name][0] == kind, name
        if name not in empty:  # of a metric without a sample the labels cannot be seen
            assert documented[name][1] == labels, name


def test_a_scrape_makes_one_listing_at_most(replica: MetaProcess) -> None:
    """Prometheus comes every few seconds, which must not load the bucket."""
    _, before = scrape(replica.http)
    for _ in range(5):
        _, after = scrape(replica.http)

    def listings(families: dict[str, Metric]) -> float:
        family = families["tussock_meta_bucket_requests"]
        return sum(one.value for one in family.samples if one.labels == {"caller": "meta", "operation": "list"})

    assert listings(after) - listings(before) <= 5


def render(status: ServiceStatus) -> dict[str, Metric]:
    metrics = ReplicaMetrics()
    metrics.register(StatusCollector(lambda: status, dict))
    return {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}


def table_status(name: str, **fields: object) -> TableStatus:
    one = TableStatus(
        id=1,
        name=name,
        kind="raw",
        primary_key=(),
        vnodes=256,
        last_epoch=0,
        ssts=1,
        rows=10,
        deletes=1,
        bytes=100,
        levels=(),
        l0_runs=1,
        l0_stall_runs=128,
        stall="",
    )
    return replace(one, **fields)


def test_number_of_tables_does_not_grow_the_labels() -> None:
    """Only the largest tables have lines; all others share one line, and no row of them is lost."""
    count = TABLES_MAX + 50
    tables = tuple(table_status(f"t{at}", bytes=100 + at, stall="x" * (at == 0)) for at in range(count))
    families = render(bare_status(tables=tables))
    rows = families["tussock_meta_table_rows"].samples
    assert len(rows) == TABLES_MAX + 1
    assert sum(sample.value for sample in rows) == 10 * count
    assert value(families, "tussock_meta_table_rows", table=OTHER_TABLES) == 500
    assert value(families, "tussock_meta_table_stalled", table=OTHER_TABLES) == 1
    assert value(families, "tussock_meta_tables") == count


def test_losses_are_counted() -> None:
    """What was put aside and is kept, and the rows of all that was accepted as lost; 0 of a store without."""
    loss = LossStatus(
        sst="1", table="t", history=False, rows=7, bytes=100, min_epoch=1, max_epoch=2, at_ms=1, by="me", kept=True
    )
    for losses, kept, rows in (((), 0, 0), ((loss,), 1, 7), ((loss, replace(loss, rows=2, kept=False)), 1, 9)):
        families = render(bare_status(losses=losses))
        assert value(families, "tussock_meta_quarantined_ssts") == kept
        assert value(families, "tussock_meta_lost_rows") == rows


def test_names_of_tables_are_escaped() -> None:
    """A table may have any name; the text stays readable, and the name can be read back."""
    name = 'a"b\\c\nd{e="f"} é'
    assert value(render(bare_status(tables=(table_status(name),))), "tussock_meta_table_rows", table=name) == 10


def test_two_servers_of_a_process_do_not_mix() -> None:
    """Each server has a separate registry."""
    one, two = ReplicaMetrics(), ReplicaMetrics()
    one.log.count([])
    assert b"tussock_meta_log_entries_total 1.0" in one.render()
    assert b"tussock_meta_log_entries_total 0.0" in two.render()
