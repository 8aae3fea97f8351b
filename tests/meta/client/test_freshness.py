"""When the reads of a client of a meta service ask for a newer version."""

from pathlib import Path

import pytest

from support import inside
from support.service.platforms import Platform
from support.waiting import eventually
from tussock.meta.client.versions import Freshness
from tussock.meta.node.auth.caller import Caller
from tussock.meta.rpc import meta_pb2 as pb
from tussock.meta.server.mailbox import Mailbox

SESSION_ENDS = 20.0


def asked(freshness: Freshness, *moments: float, lease_deadline: float = SESSION_ENDS) -> list[float]:
    """At which of the moments a read asks, and gets an answer."""
    found = []
    for now in moments:
        if freshness.is_due(now, lease_deadline):
            freshness.asked_at = now
            freshness.confirm(now)
            found.append(now)
    return found


def test_while_heartbeats_are_answered_no_read_asks() -> None:
    """Versions are pushed; after the session has ended without an answer reads ask four times a second."""
    assert asked(Freshness(None), 0, 1, 19.9) == []
    assert asked(Freshness(None), 20, 20.1, 20.25, 20.4, 20.5) == [20, 20.25, 20.5]


def test_with_a_bound_reads_ask_once_it_has_passed_without_a_word_of_the_leader() -> None:
    """A heartbeat that was answered is one: with a bound above their distance no read asks."""
    assert asked(Freshness(2.0), 0, 1, 1.9, 2, 3, 4.5) == [0, 2, 4.5]
    freshness = Freshness(7.0)
    found = []
    for second in range(60):
        if second % 5 == 0:
            freshness.confirm(second)
        found += asked(freshness, second, lease_deadline=second + SESSION_ENDS)
    assert found == []
    assert asked(freshness, 61, 62, 63) == [62]


def test_with_a_bound_of_zero_each_read_asks() -> None:
    """At the same moment, too."""
    assert asked(Freshness(0), 1, 1, 1.1, 1.2) == [1, 1, 1.1, 1.2]


def test_a_question_without_an_answer_is_repeated_four_times_a_second() -> None:
    """Not after the bound once more, which may be minutes."""
    freshness, found = Freshness(60), []
    freshness.confirm(0)
    for now in (59, 60, 60.1, 60.25, 60.3, 60.5):
        if freshness.is_due(now, SESSION_ENDS):
            freshness.asked_at = now
            found.append(now)
    assert found == [60, 60.25, 60.5]


@pytest.mark.parametrize(("seconds", "asks"), [(None, False), (600, False), (0, True)])
def test_reads_ask_the_service_as_often_as_the_bound_says(tmp_path: Path, seconds: float | None, asks: bool) -> None:
    """And make no request to the bucket where the row is cached; with 0 each sees the commit before it."""
    with Platform(tmp_path.as_uri()) as platform:
        writer = platform.connect()
        kv = writer.create_table("kv")
        reader = platform.connect(max_staleness=seconds)
        for number in range(5):
            epoch = writer.new_epoch()
            kv.ingest_batch([(b"k", b"%d" % number)], epoch)
            committed = writer.commit_epoch(epoch)
            if seconds != 0:
                reader.wait_epoch(committed)
            assert reader.table("kv").get(b"k") == b"%d" % number
        before, in_all = reader.requests(), _questions(platform)
        for _ in range(50):
            assert reader.table("kv").get(b"k") == b"4"
        assert reader.requests() == before
        assert (_questions(platform) > in_all) == asks


def test_a_client_is_sent_the_version_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for the version and then for what follows it; of a large one a second copy would be megabytes."""
    with Platform("memory://sent-once") as platform:
        platform.connect().create_table("kv")
        node, came = platform.leader.node, list[int]()
        subscribe = node.subscribe

        def noted(request: pb.SubscribeRequest, caller: Caller) -> Mailbox:
            came.append(request.after_seq)
            return subscribe(request, caller)

        monkeypatch.setattr(node, "subscribe", noted)
        asked_before = _questions(platform)
        known = inside.version(platform.connect()).seq
        eventually(lambda: came)
        assert came == [known]
        assert _questions(platform) == asked_before + 1


def _questions(platform: Platform) -> float:
    name = 'tussock_meta_calls_total{code="OK",method="GetVersion"} '
    [line] = [one for one in platform.leader.metrics.render().decode().splitlines() if one.startswith(name)]
    return float(line.removeprefix(name))
