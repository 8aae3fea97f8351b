"""Embedded stores on one bucket: processes are killed and stopped at any moment, and so is the bucket itself."""

import time
from pathlib import Path

import pytest

from support.buckets.minio import MinioServer
from support.chaos.child import FENCED, TABLE
from support.chaos.processes import Stage, problems_in_bucket
from support.chaos.verdict import is_telling, judge
from support.depth import DEPTH
from tussock.statestore import connect

pytestmark = [pytest.mark.minio, pytest.mark.slow, pytest.mark.long]

SECONDS = 12.0 * DEPTH


def test_nothing_is_lost_when_processes_of_one_bucket_die(minio: MinioServer, tmp_path: Path) -> None:
    """Writers, readers and a process that compacts and vacuums are killed and stopped, and so is MinIO."""
    url = minio.fresh_url()
    with connect(url, retention=3600, compaction=False) as store:
        store.create_table(TABLE)
    with Stage(tmp_path, 1) as stage:
        writers = [stage.client("write", url, f"writer-{number}") for number in range(3)]
        reader = stage.client("read", url, "reader-0")
        upkeep = stage.client("upkeep", url, "upkeep-0")
        for actor in stage.actors.values():
            actor.wait_until_begun()

        def pause_bucket() -> None:
            seconds = stage.chance.uniform(0.5, 3.0)
            stage.say(f"SIGSTOP MinIO for {seconds:.2f} s")
            minio.pause()
            try:
                time.sleep(seconds)
            finally:
                minio.resume()

        def any_writer() -> None:
            stage.kill_client(stage.chance.choice(writers))

        stage.disturb(
            SECONDS,
            [
                *[any_writer] * 4,
                lambda: stage.replace_client(stage.chance.choice(writers)),
                lambda: stage.pause(stage.chance.choice(writers), 0.2, 3.0),
                lambda: stage.kill_client(upkeep),
                lambda: stage.pause(upkeep, 0.2, 3.0),
                lambda: stage.kill_client(reader),
                lambda: stage.pause(reader, 0.2, 3.0),
                pause_bucket,
            ],
            rest=(0.2, 1.5),
        )
        # Vacuum too has to have had something to delete.
        stage.let_work(lambda lines: is_telling(lines) and any(line.get("deleted") for line in lines))
        assert [actor.stop() for actor in stage.actors.values()] == [0] * 5
        for writer in writers:
            assert set(writer.elder_codes()) <= {FENCED}, "a writer that was replaced stops"
        lines = stage.histories()
        with connect(url, compaction=False) as store:
            verdict = judge(lines, store)
            store.compact(TABLE)
            store.vacuum()
            assert judge(lines, store) == verdict, "compaction and vacuum change no answer"
        stage.say(str(verdict))
        assert verdict.commits > 20
        assert verdict.snapshots > 10
        assert any(line.get("deleted") for line in lines), "vacuum had something to delete"
    assert problems_in_bucket(url) == []
