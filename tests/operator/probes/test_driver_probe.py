"""The operator reads the driver's answers, and copes with drivers that do not answer."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from support.buckets.minio import free_port
from support.operator.computes import DEFAULTS, at, compute
from tussock.compute.driver.answers import serve_status
from tussock.compute.driver.scale import Scaler
from tussock.compute.driver.watch import Status, Watch
from tussock.compute.spark.batches import commits
from tussock.compute.spark.batches.notes import NOTES_FOLDER
from tussock.operator.cluster.seen import Key, Seen
from tussock.operator.handlers.compute import COMPUTE, DRIVER_SECONDS
from tussock.operator.handlers.world import World
from tussock.operator.manifests.labels import MANAGED_BY, MANAGED_BY_LABEL, OWNER_KIND_LABEL, OWNER_LABEL
from tussock.operator.planning.words.facts import DriverFact
from tussock.operator.probes.computes.driver import ask_driver
from tussock.operator.resources.compute import parse_compute
from tussock.statestore.base.system import RealSystem


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(Scaler(tmp_path / "executors", None), RealSystem(), is_stream=True)


@pytest.fixture
def address(watch: Watch) -> Iterator[str]:
    server = serve_status(watch, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_the_newest_commit_of_a_driver_is_read(watch: Watch, address: str) -> None:
    watch.status = Status(is_started=True, committed_epoch=12, committed_batch=3, committed_ms=1_700_000_000_123)
    assert asyncio.run(ask_driver(address)) == DriverFact(12, 3, 1_700_000_000_123)
    for text, known in (("a" * 64, "a" * 64), ("<script>", "")):
        watch.status = Status(program_sha256=text)
        assert asyncio.run(ask_driver(address)) == DriverFact(0, 0, 0, known), "a user's pod answers"
    for said, used in ((87, 87), (-1, None), (101, None), (None, None)):
        watch.status = Status(checkpoint_used_percent=said)
        assert asyncio.run(ask_driver(address)) == DriverFact(0, 0, 0, "", used)
    for wanted, told, known in (
        (3, "Streams are late.", (3, "Streams are late.")),
        (-1, "a\nb\x1b[0m", (None, "ab[0m")),
        (1 << 40, "x" * 999, (None, "x" * 300)),
    ):
        watch.status = Status(executors_wanted=wanted, scaling=told)
        assert asyncio.run(ask_driver(address)) == DriverFact(0, 0, 0, "", None, *known)
    watch.status = Status()
    assert asyncio.run(ask_driver(address)) == DriverFact(0, 0, 0)


def test_a_driver_that_does_not_answer_is_no_error() -> None:
    """It may just have ended, or the operator may be outside the cluster's network."""
    assert asyncio.run(ask_driver(f"127.0.0.1:{free_port()}")) is None


def test_the_newest_commit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is repeated after a restart has an older epoch, and is no news; another writer's may be."""
    monkeypatch.setenv(NOTES_FOLDER, str(tmp_path))
    assert commits.latest_commit() is None
    commits.note_commit("w", 3, 12)
    commits.note_commit("w", 2, 9)
    assert commit_fields(commits.latest_commit()) == ("w", 3, 12)
    commits.note_commit("v", 0, 11)
    assert commit_fields(commits.latest_commit()) == ("w", 3, 12)
    commits.note_commit("v", 1, 13)
    assert commit_fields(commits.latest_commit()) == ("v", 1, 13)


def commit_fields(commit: commits.Commit | None) -> tuple[str, int, int] | None:
    return commit and commit[:3]


def test_a_commit_succeeds_though_it_cannot_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NOTES_FOLDER, str(tmp_path / "gone"))
    commits.note_commit("w", 3, 12)
    assert commits.latest_commit() is None
    (tmp_path / "broken.json").write_text("{")
    monkeypatch.setenv(NOTES_FOLDER, str(tmp_path))
    assert commits.latest_commit() is None


def test_without_a_folder_for_notes_nothing_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTES_FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    commits.note_commit("w", 3, 12)
    assert commits.latest_commit() is None
    assert list(tmp_path.iterdir()) == []


class FakeProbes:
    """Stands in for `Probes`: notes which drivers it was asked about."""

    def __init__(self) -> None:
        self.about: list[object] = []

    def fact(self, _owner: Key, about: object, _run: object, _every_seconds: float) -> None:
        self.about.append(about)


def test_of_two_drivers_the_one_on_a_living_node_is_asked() -> None:
    """A pod on a lost node stays `Running`, and does not answer."""
    seen, probes = Seen(), FakeProbes()
    job = compute()
    labels = {MANAGED_BY_LABEL: MANAGED_BY, OWNER_KIND_LABEL: "Compute", OWNER_LABEL: "x", "tussock.dev/role": "driver"}
    for name, gone in (("x-driver", {"deletionTimestamp": at(-600)}), ("x-driver-2", {})):
        owned = {"labels": labels, "ownerReferences": [{"kind": "Compute", "name": "x", "uid": job["metadata"]["uid"]}]}
        metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", **owned, **gone}
        seen.put("Pod", {"metadata": metadata, "status": {"phase": "Running", "podIP": "10.0.0.1"}})
    # What is asked needs no more of a world.
    parts = {"probes": probes, "seen": seen, "defaults": DEFAULTS, "has_cert_manager": False}
    world = cast(World, SimpleNamespace(refs=lambda *_: {}, **parts))
    COMPUTE.observe(world, parse_compute(job), job)
    assert probes.about == [("driver", "x-driver-2")]


def test_the_page_on_jobs_says_how_often_a_driver_is_asked() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "operator" / "compute.md"
    assert f"asks the driver at most every {DRIVER_SECONDS:g} seconds" in page.read_text()
