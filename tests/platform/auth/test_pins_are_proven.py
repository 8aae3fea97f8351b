"""A pin is released only by the session that took it, at this leader and at the next one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.service.guarded_meta import GuardedMeta
from tussock.meta.retention.pin_objects import pin_objects
from tussock.meta.rpc import meta_pb2 as pb
from tussock.statestore.buckets import open_bucket

THIEF = "ab" * 16


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedMeta]:
    """A service that a writer has committed to and pinned, twice."""
    with GuardedMeta(tmp_path_factory.mktemp("pins"), "--versions.retention-seconds", "0") as service:
        yield service


def opening(*pins: pb.PinInfo) -> pb.OpenSessionRequest:
    return pb.OpenSessionRequest(session_id=THIEF, kind=pb.CLIENT, name="a reader", pins=pins)


def ids_in(meta: GuardedMeta) -> set[str]:
    """The pins in the bucket, not those that the service lists."""
    bucket = open_bucket(meta.store_url)
    try:
        return {pin.id for pin, _ in pin_objects(bucket)}
    finally:
        bucket.close()


def test_a_reader_cannot_take_over_and_release_pins_of_others(meta: GuardedMeta) -> None:
    """Any caller can list ids; a session that shows foreign ones gets none, and its end releases none."""
    with meta.connect("writer") as store:
        kv = store.create_table("kv")
        for value in (b"old", b"new"):
            epoch = store.new_epoch()
            kv.ingest_batch([(b"a", value)], epoch)
            store.commit_epoch(epoch)
            if value == b"old":
                snapshot = store.pin_snapshot()
        reader = meta.caller("reader")
        shown = list(reader.call("ListPins", pb.ListPinsRequest()).pins)
        assert [pin.epoch for pin in shown] == [snapshot.epoch]
        answer = reader.call("OpenSession", opening(*shown))
        assert list(answer.lost_pins) == [pin.id for pin in shown]
        reader.call("Unpin", pb.UnpinRequest(session_id=THIEF, pin_id=shown[0].id))
        reader.call("CloseSession", pb.CloseSessionRequest(session_id=THIEF))
        assert ids_in(meta) == {shown[0].id}
        assert snapshot.table("kv").get(b"a") == b"old"
        snapshot.close()
        store.drop_table("kv")


@pytest.mark.parametrize("role", ["reader", "writer", "admin"])
def test_a_made_up_pin_gets_no_object(meta: GuardedMeta, role: str) -> None:
    """One with the smallest name and a large epoch would hide all others from compaction."""
    caller = meta.caller(role)
    before = ids_in(meta)
    made_up = [
        pb.PinInfo(id=f"{0:020d}-{1:016x}", epoch=2**62, owner="x", created_ms=1, expires_ms=2**62),
        pb.PinInfo(id=f"{1:020d}-{1:016x}", epoch=1, owner="x" * 100_000, expires_ms=2**62),
        pb.PinInfo(id="../log/00000000000000000001.delta", epoch=1),
        pb.PinInfo(id="", epoch=0),
    ]
    answer = caller.call("OpenSession", opening(*made_up))
    assert list(answer.lost_pins) == [pin.id for pin in made_up]
    caller.call("CloseSession", pb.CloseSessionRequest(session_id=THIEF))
    assert ids_in(meta) == before


def test_a_session_shows_its_own_pins_to_the_next_leader(tmp_path: Path) -> None:
    """The same session with the same identity proves them; with another identity it gets none."""
    session = "cd" * 16
    own = pb.OpenSessionRequest(session_id=session, kind=pb.CLIENT, name="a job")
    with GuardedMeta(tmp_path) as first:
        caller = first.caller("reader")
        caller.call("OpenSession", own)
        pin = caller.call("Pin", pb.PinRequest(session_id=session, token="0" * 16)).pin
        first.process.process.kill()
        first.process.wait()
        tokens = first.tokens
        with GuardedMeta(tmp_path) as second:
            own.pins.append(pin)
            stranger = second.caller("writer")
            assert list(stranger.call("OpenSession", own).lost_pins) == [pin.id]
            stranger.call("CloseSession", pb.CloseSessionRequest(session_id=session))
            assert list(second.caller("reader").call("OpenSession", own).lost_pins) == []
            assert tokens.keys() == second.tokens.keys()
