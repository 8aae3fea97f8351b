"""A clock is repaired while the meta service is stopped; the next service and its clients use present epochs."""

import pytest

from support.service.platforms import QUIET, Platform
from tussock.statestore import EpochTooOld, InvalidOption, StateStore, connect, repair_clock
from tussock.statestore.base.system import RealSystem
from tussock.statestore.epochs import MAX_EPOCH, epoch_ms

URL = "memory://repaired-at-rest"


def _commit(store: StateStore, value: bytes, epoch: int) -> int:
    store.table("kv").ingest_batch([(b"k", value)], epoch)
    return store.commit_epoch(epoch)


def test_a_store_is_repaired_between_two_services() -> None:
    """The repair is refused while a leader is there, with its address; later clients read, pin and commit."""
    with connect(URL, compaction=False, max_clock_ahead=1e15) as old:
        old.create_table("kv")
        _commit(old, b"1", MAX_EPOCH)
        with Platform(URL, picker=QUIET) as platform:
            client = platform.connect()
            assert client.table("kv").get(b"k") == b"1"
            with pytest.raises(EpochTooOld, match="tussock repair clock"):
                client.new_epoch()
            with pytest.raises(InvalidOption, match=rf"the meta service at {platform.leader.address} leads it"):
                repair_clock(URL)
            with pytest.raises(InvalidOption, match="stop the service"):
                repair_clock(platform.url)
            platform.leader.stop(drain=True)
            platform.replicas.clear()
            assert repair_clock(URL).old == (MAX_EPOCH, MAX_EPOCH)
        with Platform(URL, picker=QUIET) as platform:
            client = platform.connect()
            assert client.table("kv").get(b"k") == b"1"
            with client.pin_snapshot() as snapshot:
                epoch = _commit(client, b"2", client.new_epoch())
                assert snapshot.table("kv").get(b"k") == b"1"
            assert abs(epoch_ms(epoch) - RealSystem().now_ms()) < 3600_000
            assert client.table("kv").get(b"k", epoch=epoch) == b"2"
