"""Processes of different releases on one store: the protocol that they agree on, and their errors otherwise."""

import json
import re
import struct
from pathlib import Path

import crc32c
import grpc
import pytest

from support.service.platforms import Platform
from support.waiting import eventually
from tussock.meta.client.transport import GrpcTransport
from tussock.meta.log.format import FORMAT_VERSION, entry_path
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.errors import ERROR_METADATA, decode_error
from tussock.meta.rpc.methods import METHODS, OLDEST_PROTOCOL, PROTOCOL_VERSION, common_protocol
from tussock.statestore import connect
from tussock.statestore.buckets import open_bucket
from tussock.statestore.errors import CorruptLog, NewerFormat, ProtocolMismatch


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 2), (1, 1), 1),
        ((1, 1), (1, 2), 1),
        ((2, 5), (1, 3), 3),
        ((2, 3), (1, 1), None),
        ((1, 1), (2, 3), None),
        ((1, 2), (0, 0), None),
    ],
)
def test_two_releases_use_the_newest_common_protocol(
    ours: tuple[int, int], theirs: tuple[int, int], common: int | None
) -> None:
    """Without a common one the error says which of them to upgrade."""
    assert common_protocol(*theirs, own=ours) == common


@pytest.mark.parametrize("spoken", ["0", str(PROTOCOL_VERSION + 1), "-1", "", "1.0", "x" * 100, "٣", "9" * 5000])
def test_the_error_for_an_unknown_protocol_has_the_known_range(spoken: str) -> None:
    """The error has the range, for the client to choose from."""
    with Platform("memory://") as platform, grpc.insecure_channel(platform.leader.address) as channel:
        said = [("tussock-protocol", spoken)] if spoken.isascii() else [("tussock-protocol", "3e")]
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary(METHODS["GetStatus"].path)(b"", metadata=said, timeout=60)
        error = decode_error(dict(raised.value.trailing_metadata())[ERROR_METADATA])
    assert type(error) is ProtocolMismatch
    assert error.args[2:] == (PROTOCOL_VERSION, OLDEST_PROTOCOL)


def test_a_newer_client_uses_the_protocol_of_an_older_service() -> None:
    """It begins with its own, is refused, and continues with a common one; its user sees nothing of that."""
    with Platform("memory://mixed") as platform:
        transport = GrpcTransport(platform.leader.address, protocol=PROTOCOL_VERSION + 1)
        for _ in range(2):
            answer = transport.call(METHODS["GetVersion"], pb.GetVersionRequest(), 60)
            assert isinstance(answer, pb.GetVersionResponse)
        transport.close()
        refused = re.search(rb'code="UNIMPLEMENTED"[^}]*} ([0-9.]+)', platform.leader.metrics.render())
        assert refused is not None
        assert float(refused[1]) == 1, "only once: what they have in common is remembered"


def newer_entry(folder: Path) -> None:
    """Append to the log as a newer release would."""
    bucket = open_bucket(folder.as_uri())
    seq = 1
    while any(info.path == entry_path(seq + 1) for info in bucket.list("log/")):
        seq += 1
    data = bytearray(bucket.get(entry_path(seq)))[:-4]
    struct.pack_into("<H", data, 4, FORMAT_VERSION + 1)
    struct.pack_into("<Q", data, 8, seq + 1)
    assert bucket.create(entry_path(seq + 1), bytes(data) + crc32c.crc32c(bytes(data)).to_bytes(4, "little"))
    bucket.close()


def test_a_replica_of_an_older_release_stops_leading_with_a_reason(tmp_path: Path) -> None:
    """The log is not damaged; and a leader that cannot read it cannot lead."""
    with Platform((tmp_path / "store").as_uri(), replicas=2) as platform:
        newer_entry(tmp_path / "store")
        eventually(lambda: all(replica.node.outdated for replica in platform.replicas))
        eventually(lambda: not any(replica.node.is_leader for replica in platform.replicas))
        for replica in platform.replicas:
            with grpc.insecure_channel(replica.address) as channel:
                data = channel.unary_unary(METHODS["GetStatus"].path)(
                    b"", metadata=[("tussock-protocol", "1")], timeout=60
                )
            status = json.loads(pb.GetStatusResponse.FromString(data).status)
            assert not status["replica"]["ready"]
            assert "newer Tussock" in status["replica"]["outdated"]
            assert "outdated" in {problem["kind"] for problem in status["problems"]}


def test_an_embedded_process_of_an_older_release_gets_a_named_error(tmp_path: Path) -> None:
    """The error is `NewerFormat`, a subclass of `CorruptLog` for code that knows only that."""
    with connect((tmp_path / "store").as_uri()) as store:
        store.create_table("kv")
    newer_entry(tmp_path / "store")
    with pytest.raises(NewerFormat, match=f"format version {FORMAT_VERSION + 1}") as raised:
        connect((tmp_path / "store").as_uri())
    assert isinstance(raised.value, CorruptLog)
    assert raised.value.args[1:] == (FORMAT_VERSION + 1, FORMAT_VERSION)
