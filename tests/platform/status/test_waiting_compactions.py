"""The backlog of compaction, as `/metrics` of a real service shows it: it grows under load, and compactors end it."""

import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.service.meta_process import CompactorProcess, MetaProcess
from support.waiting import eventually
from tussock.statestore import StateStore, connect

PREFIX = "tussock_meta_compaction_"


class Service:
    """A replica without compactors, and a client with the table `kv`."""

    def __init__(self, meta: MetaProcess, store: StateStore) -> None:
        self.meta = meta
        self.store = store
        self.table = store.create_table("kv")

    def write(self, commits: int) -> None:
        """Each commit is a sorted run of about 10 KB."""
        for _ in range(commits):
            epoch = self.store.new_epoch()
            self.table.ingest_batch([(b"%06d" % row, b"v" * 100) for row in range(100)], epoch)
            self.store.commit_epoch(epoch)

    def figures(self) -> dict[str, float]:
        """The metrics of compaction without labels, by what follows their prefix."""
        with urllib.request.urlopen(f"http://{self.meta.http}/metrics", timeout=60) as answer:
            families = text_string_to_metric_families(answer.read().decode())
        samples = [one for family in families for one in family.samples if one.name.startswith(PREFIX)]
        return {one.name.removeprefix(PREFIX): one.value for one in samples if not one.labels}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with ExitStack() as exits:
        meta = exits.enter_context(MetaProcess(tmp_path.as_uri())).wait_until_it_leads()
        yield Service(meta, exits.enter_context(connect(meta.url, retention=0, deadline=20)))


def test_the_backlog_grows_without_compactors_and_falls_to_nothing_with_one(service: Service) -> None:
    """It says how much work waits, with compactors and without; then none waits, and none runs."""
    sizes = []
    for _ in range(3):
        assert service.figures()["slots"] == 0
        sizes.append(service.figures()["backlog_bytes"])
        service.write(commits=16)
    sizes.append(service.figures()["backlog_bytes"])
    assert sizes[0] == 0
    assert sizes == sorted(set(sizes))
    waiting = service.figures()["backlog_tasks"]
    assert 1 <= waiting <= 4, "compaction.tasks_per_table"
    with CompactorProcess(service.meta, "c") as compactor:
        compactor.wait_until_connected()

        def is_done() -> bool:
            now = service.figures()
            return not any(now[name] for name in ("backlog_tasks", "backlog_bytes", "tasks_bytes"))

        eventually(is_done)
        done = compactor.wait_for(event="compaction task done")
        assert done["table"] == "kv"
    service.write(commits=3)
    assert service.figures()["backlog_tasks"] == 0, "three runs are no work"
