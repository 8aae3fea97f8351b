"""`HandOver` at real processes: the named replica leads, and clients go on."""

import time
import uuid
from pathlib import Path

import pytest

from support.service.meta_process import MetaProcess
from support.waiting import eventually
from tussock.meta.client.transport import GrpcTransport
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.methods import METHODS
from tussock.statestore import connect
from tussock.statestore.errors import InvalidOption, NotLeader

LEASE = ("--leader.lease-seconds", "40")
"""Nobody waits for its end in a test: a takeover that is quicker was handed over."""
SOON_SECONDS = 30


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return (tmp_path / "store").as_uri()


def hand_over(process: MetaProcess, address: str) -> int:
    transport = GrpcTransport(process.address, None)
    try:
        answer = transport.call(METHODS["HandOver"], pb.HandOverRequest(address=address), 30)
    finally:
        transport.close()
    assert isinstance(answer, pb.HandOverResponse)
    return answer.term


def hand_over_when_known(leader: MetaProcess, address: str) -> int:
    """The leader looks every ten seconds for replicas that follow it."""
    terms: list[int] = []

    def is_handed_over() -> bool:
        try:
            terms.append(hand_over(leader, address))
        except InvalidOption:
            time.sleep(0.5)
            return False
        return True

    eventually(is_handed_over)
    return terms[0]


def test_the_named_replica_leads_and_clients_go_on(store_url: str) -> None:
    """Long before the lease ends; a pin and a writer's batches stay, and leadership can be handed back."""
    with MetaProcess(store_url, *LEASE) as first:
        first.wait_until_it_leads()
        with MetaProcess(store_url, *LEASE) as second, connect(f"{first.url},{second.address}") as store:
            kv = store.create_table("kv")
            with store.pin_snapshot() as pinned:
                assert hand_over_when_known(first, second.address) == 1
                begun = time.monotonic()
                assert second.wait_for(event="leading")["term"] == 2
                assert time.monotonic() - begun < SOON_SECONDS
                epoch = store.new_epoch()
                kv.ingest_batch([(b"a", b"1")], epoch)
                store.commit_epoch(epoch, writer="job", batch_id=1)
                assert kv.get(b"a") == b"1"
                assert pinned.table("kv").get(b"a") is None
                assert len(store.pins()) == 1
            with pytest.raises(NotLeader) as refused:
                hand_over(first, second.address)
            assert refused.value.args[1] in ("", second.address)
            assert hand_over(second, second.address) == 2, "the leader itself: nothing happens"
            assert hand_over_when_known(second, first.address) == 2
            assert first.wait_for(event="leading", term=3)["term"] == 3
            lost = first.wait_for(event="no longer leading")
            assert lost["reason"] == f"leadership is handed to {second.address}"


@pytest.mark.parametrize("address", ["", "nobody:1", "x" * 5000, "\x1b[31m", uuid.UUID(int=0).hex])
def test_only_a_replica_that_follows_is_named(store_url: str, address: str) -> None:
    """Everything else would leave the store without a leader for a lease; the present one goes on."""
    with MetaProcess(store_url, *LEASE) as process:
        process.wait_until_it_leads()
        with pytest.raises(InvalidOption, match=r"those that do|none does") as refused:
            hand_over(process, address)
        assert len(str(refused.value)) < 500
        with connect(process.url) as store:
            store.create_table("kv")
