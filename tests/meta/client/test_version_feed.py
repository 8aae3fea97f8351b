"""Versions on their way to clients: updates of the feed, and how a client applies them."""

import asyncio

import pytest

from support.store.versions import FakeSystem, ModelBucket, spec
from tussock.meta.client.follower import follow
from tussock.meta.client.versions import PushedVersion
from tussock.meta.log.format import encode_base
from tussock.meta.log.log import VersionLog
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.rpc.base_messages import base_message
from tussock.meta.server.feed import ENTRIES_MAX, NEWS_BYTES_MAX, Feed
from tussock.meta.server.mailbox import EVENTS_MAX, Mailbox
from tussock.meta.server.wire.grpc_server import events_of
from tussock.meta.version.deltas.tables import CreateTable
from tussock.meta.version.version import Version
from tussock.statestore.errors import CorruptLog


class Source:
    """A log of tables created one after the other, and a feed that learns its entries."""

    def __init__(self) -> None:
        system = FakeSystem()
        self.log = VersionLog(ModelBucket(system), system, owner="source")
        self.feed = Feed(self.log.version)
        self.log.subscribe(self.feed.learn)

    def create_tables(self, count: int, pad: str = "") -> Version:
        for _ in range(count):
            self.log.append(lambda version: self._next(version, pad))
        return self.log.version

    @staticmethod
    def _next(version: Version, pad: str):
        return [CreateTable(spec=spec(f"t{version.next_table_id}{pad}", version.next_table_id))], None


def sent(feed: Feed, seq: int) -> pb.VersionUpdate:
    """The answer to `GetVersion`."""
    return pb.GetVersionResponse.FromString(feed.answer(seq).SerializeToString()).update


def follow_update(version: Version, update: pb.VersionUpdate) -> Version:
    return follow(version, update.snapshot_seq, update.snapshot, update.first_seq, list(update.entries))


@pytest.mark.parametrize("behind", [0, 1, 7])
def test_a_client_not_far_behind_gets_the_entries_that_it_lacks(behind: int) -> None:
    """Exactly these, and no snapshot."""
    source = Source()
    old = source.create_tables(10)
    newest = source.create_tables(behind)
    update = sent(source.feed, old.seq)
    assert (len(update.entries), update.snapshot, update.seq) == (behind, b"", newest.seq)
    assert follow_update(old, update) == newest


def test_a_client_far_behind_gets_a_snapshot() -> None:
    """Also a client without a version; entries after the snapshot come with it."""
    source = Source()
    first = source.create_tables(1)
    newest = source.create_tables(ENTRIES_MAX + 5)
    for version in (Version(), first):
        update = sent(source.feed, version.seq)
        assert update.snapshot
        assert follow_update(version, update) == newest
    later = source.create_tables(3)
    update = sent(source.feed, 0)
    assert (update.snapshot_seq, len(update.entries)) == (newest.seq, 3)  # the snapshot is made once
    assert follow_update(Version(), update) == later


def test_a_jump_of_the_log_leaves_no_hole() -> None:
    """A replica that loaded a snapshot has no earlier entries to give."""
    source = Source()
    old = source.create_tables(5)
    feed = Feed(old)
    newest = source.create_tables(5)
    feed.learn(None, newest)
    assert follow_update(old, sent(feed, old.seq)) == newest
    assert follow_update(newest, sent(feed, newest.seq)) == newest


def test_a_client_never_goes_back_and_never_skips_an_entry() -> None:
    """An older update is ignored; one that does not reach down to the client's version changes nothing."""
    source = Source()
    old = source.create_tables(3)
    middle = source.create_tables(3)
    newest = source.create_tables(3)
    assert follow_update(newest, sent(source.feed, old.seq)) == newest
    assert follow_update(old, sent(source.feed, middle.seq)) == old
    overlapping = sent(source.feed, old.seq)
    assert follow_update(middle, overlapping) == newest
    stale = pb.VersionUpdate(snapshot=encode_base(old), snapshot_seq=old.seq, seq=old.seq)
    assert follow_update(middle, stale) == middle


def test_damaged_bytes_change_nothing() -> None:
    """The checksum of the entry is that of the bucket's object."""
    source = Source()
    old = source.create_tables(1)
    source.create_tables(1)
    update = sent(source.feed, old.seq)
    spoilt = bytearray(update.entries[0])
    spoilt[len(spoilt) // 2] ^= 1
    pushed = PushedVersion(FakeSystem())
    pushed.version = old
    with pytest.raises(CorruptLog, match="crc32c"):
        pushed.learn(pb.VersionUpdate(first_seq=old.seq + 1, entries=[bytes(spoilt)], seq=old.seq + 1))
    assert pushed.version == old
    assert pushed.learn(update)


def test_a_pushed_version_with_a_gap_is_reported() -> None:
    """The client then subscribes anew."""
    source = Source()
    old = source.create_tables(2)
    middle = source.create_tables(2)
    newest = source.create_tables(2)
    pushed = PushedVersion(FakeSystem())
    pushed.version = old
    assert not pushed.learn(sent(source.feed, middle.seq))
    assert pushed.learn(sent(source.feed, old.seq))
    assert pushed.await_seq(newest.seq, 0) == newest


def events(mailbox: Mailbox) -> list[pb.Event]:
    return [pb.Event.FromString(data) for data in mailbox.take()]


def test_a_mailbox_sends_entries_together_as_one_event() -> None:
    """All entries since the last time are one event; a version comes before events that need it."""
    source = Source()
    old = source.create_tables(1)
    mailbox = Mailbox(source.feed.news, old.seq)
    woken: list[int] = []
    mailbox.on_ready(lambda: woken.append(1))
    assert events(mailbox) == []
    for _ in range(4):
        source.create_tables(1)
        mailbox.wake()
    mailbox.put(pb.Event(task=pb.CompactionTask(id="x")).SerializeToString())
    first, second = events(mailbox)
    assert (len(first.version.entries), second.task.id) == (4, "x")
    assert events(mailbox) == []
    assert len(woken) <= 3


def test_a_subscriber_that_lets_events_pile_up_has_to_subscribe_again() -> None:
    """The leader does not wait for it, and keeps no unbounded queue."""
    mailbox = Mailbox(Source().feed.news, 0)
    for _ in range(EVENTS_MAX + 1):
        mailbox.put(pb.Event(task=pb.CompactionTask()).SerializeToString())
    found = events(mailbox)
    assert mailbox.closed
    assert len(found) == EVENTS_MAX + 1
    assert "too slow" in found[-1].closing.reason
    mailbox.put(b"")
    assert events(mailbox) == []


def test_a_subscriber_gets_the_closing_reason_though_an_event_is_in_flight() -> None:
    """A mailbox that is closed while it sends an event is emptied once more."""
    mailbox = Mailbox(Source().feed.news, 0)
    mailbox.put(pb.Event(task=pb.CompactionTask(id="x")).SerializeToString())

    async def hear() -> list[str]:
        found = []
        async for event in events_of(mailbox):
            found.append(pb.Event.FromString(event).WhichOneof("event") or "")
            mailbox.close("the replica is shutting down")
        return found

    assert asyncio.run(hear()) == ["task", "closing"]


def test_clients_far_behind_share_the_bytes_of_a_snapshot() -> None:
    """A version of 100,000 SSTs is 17 MiB: a copy for each of fifty clients at once would be a gigabyte."""
    source = Source()
    source.create_tables(ENTRIES_MAX + 5)
    mailboxes = [Mailbox(source.feed.news, 0) for _ in range(50)]
    events_taken = [mailbox.take()[0] for mailbox in mailboxes]
    assert len({id(event) for event in events_taken}) == 1
    asked = [source.feed.answer(0).SerializeToString() for _ in range(50)]
    assert all(answer is events_taken[0] for answer in asked)
    source.create_tables(3)
    late = Mailbox(source.feed.news, 0)
    assert late.take()[0] is events_taken[0], "what came since follows as entries"
    pushed = PushedVersion(FakeSystem())
    assert pushed.learn(pb.Event.FromString(events_taken[0]).version)
    (rest,) = late.take()
    assert pushed.learn(pb.Event.FromString(rest).version)
    assert pushed.version == source.log.version


@pytest.mark.parametrize("size", [1, 127, 128, 1 << 14, (1 << 21) + 1])
def test_a_base_version_is_encoded_as_protobuf_does(size: int) -> None:
    """As an event and as an answer, whose fields have the same numbers; entries may follow it."""
    snapshot = b"x" * size
    update = pb.VersionUpdate(snapshot=snapshot, snapshot_seq=300, first_seq=301, seq=300)
    data = base_message(300, snapshot)
    assert (
        data == pb.Event(version=update).SerializeToString() == pb.GetVersionResponse(update=update).SerializeToString()
    )
    later = pb.GetVersionResponse(update=pb.VersionUpdate(first_seq=301, entries=[b"a", b"b"], seq=302))
    both = pb.GetVersionResponse.FromString(data + later.SerializeToString()).update
    update.MergeFrom(later.update)
    assert both == update


def test_an_answer_is_reckoned_by_what_it_holds_in_memory() -> None:
    """A base version with entries after it is copied once more than one alone."""
    source = Source()
    source.create_tables(ENTRIES_MAX + 5)
    (base,) = Mailbox(source.feed.news, 0).take()
    assert source.feed.bytes_after(0) == len(base)
    source.create_tables(1)
    assert source.feed.bytes_after(0) > 2 * len(base)
    assert source.feed.bytes_after(source.log.version.seq) == 0


def test_many_entries_come_in_several_events() -> None:
    """No event is large enough for a slow reader to make the leader hold megabytes for it."""
    source = Source()
    old = source.create_tables(1)
    mailbox = Mailbox(source.feed.news, old.seq)
    for _ in range(8):
        source.create_tables(1, pad="x" * (NEWS_BYTES_MAX // 4))
    mailbox.put(pb.Event(task=pb.CompactionTask(id="x")).SerializeToString())
    woken: list[int] = []
    mailbox.on_ready(lambda: woken.append(1))
    taken = [events(mailbox) for _ in range(4)]
    kinds = [[event.WhichOneof("event") for event in some] for some in taken]
    assert [kind for some in kinds for kind in some][-1] == "task"
    assert len([some for some in kinds if "version" in some]) > 1
    assert len(woken) > 1
    pushed = PushedVersion(FakeSystem())
    pushed.learn(sent(source.feed, 0))
    assert pushed.version == source.log.version
