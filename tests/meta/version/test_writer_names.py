"""Names of writers: one identity cannot bring all of them, unused ones are forgotten, and what was fenced stays so."""

import pytest

from support.store.versions import FakeSystem, ModelBucket, request, spec
from tussock.meta.meta_store import MetaStore
from tussock.meta.version.bounds import WRITERS_MAX, check_new_writer, idle_writers, unused_writers
from tussock.meta.version.deltas.commits import OpenWriter
from tussock.meta.version.deltas.delta import advance
from tussock.meta.version.deltas.retention import ForgetWriters
from tussock.meta.version.names import NameOrigin, WriterNames
from tussock.meta.version.version import Version
from tussock.statestore.errors import Fenced, InvalidOption, LimitReached

DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def store(bucket: ModelBucket, system: FakeSystem) -> MetaStore:
    """A store with one table."""
    made = MetaStore(bucket, system)
    made.create_table(spec())
    return made


def of(**counts: int) -> Version:
    """A version in which these identities have brought that many names each."""
    names = {f"{by}-{number}": by for by, count in counts.items() for number in range(count)}
    return Version(
        generations=dict.fromkeys(names, 1),
        known_names=WriterNames(origins={name: NameOrigin(by=by, opened_ms=1) for name, by in names.items()}),
    )


def test_one_identity_brings_no_more_names_than_are_free() -> None:
    """One may bring half of all; others still find room, and names that are there stay usable."""
    half = of(a=WRITERS_MAX // 2)
    with pytest.raises(LimitReached, match="brought by 'a', which may bring as many as are free: give a stream one"):
        check_new_writer(half, "new", "a")
    assert check_new_writer(half, "new", "b")
    assert check_new_writer(half, "new")
    assert not check_new_writer(half, "a-0", "a")
    full = of(a=WRITERS_MAX // 2, b=WRITERS_MAX // 2)
    for by in ("c", ""):
        with pytest.raises(LimitReached, match="repair writers"):
            check_new_writer(full, "new", by)


def test_a_store_remembers_the_identity_that_brought_a_name(
    store: MetaStore, bucket: ModelBucket, system: FakeSystem
) -> None:
    """By opening it or by its first commit; another that uses it later changes nothing of that."""
    store.open_writer("opened", "a")
    store.open_writer("opened", "b")
    store.commit(request(1, writer="committed", batch_id=1), "a")
    store.commit(request(2, writer="committed", batch_id=2), "b")
    origins = MetaStore(bucket, system).version().names.origins
    assert {name: origin.by for name, origin in origins.items()} == {"opened": "a", "committed": "a"}


def test_a_name_that_never_committed_is_forgotten_by_vacuum(store: MetaStore, system: FakeSystem) -> None:
    """After a week; one that has committed stays for ever."""
    store.open_writer("unused")
    store.open_writer("used")
    store.commit(request(1, writer="used", batch_id=1, generation=1))
    system.forward(6 * DAY_MS / 1000)
    store.vacuum()
    assert store.version().knows_writer("unused")
    system.forward(2 * DAY_MS / 1000)
    store.vacuum()
    assert not store.version().knows_writer("unused")
    assert store.version().knows_writer("used")
    assert unused_writers(store.version(), system.now_ms()) == ()


def test_what_was_fenced_before_its_name_was_forgotten_stays_fenced(store: MetaStore) -> None:
    """A generation is never given twice, whichever name is opened next."""
    generations = [store.open_writer("job") for _ in range(3)]
    assert generations == [1, 2, 3]
    assert store.forget_writers(["job", "nobody"]) == ["job"]
    for generation in generations:
        with pytest.raises(Fenced, match="was forgotten since its generation"):
            store.commit(request(1, writer="job", batch_id=1, generation=generation))
    assert store.open_writer("job") == 4
    assert store.open_writer("other") == 4
    for generation in generations:
        with pytest.raises(Fenced, match="generation 4 was opened since"):
            store.commit(request(1, writer="job", batch_id=1, generation=generation))
    with pytest.raises(InvalidOption, match="was never opened"):
        store.commit(request(1, writer="job", batch_id=1, generation=5))
    assert store.commit(request(1, writer="job", batch_id=1, generation=4)) == 1


def test_batches_of_a_forgotten_name_are_new(store: MetaStore) -> None:
    """That is the price: only an admin may ask for it, of a job that is over."""
    assert store.commit(request(1, writer="job", batch_id=7)) == 1
    assert store.commit(request(2, writer="job", batch_id=7)) == 1
    store.forget_writers(["job"])
    assert store.commit(request(2, writer="job", batch_id=7)) == 2
    assert list(store.version().ledger) == ["job"]


def test_forgetting_twice_is_no_error() -> None:
    """Two vacuums may find the same names."""
    version = advance(Version(), [OpenWriter(writer="a", generation=1, by="x", at_ms=5)])
    forget = ForgetWriters(writers=("a",))
    once = advance(version, [forget])
    twice = advance(once, [forget])
    assert once.names == twice.names == WriterNames(generation_floor=1)
    assert not twice.knows_writer("a")


def test_writers_are_idle_by_their_newest_batch_and_by_when_they_came(
    store: MetaStore, bucket: ModelBucket, system: FakeSystem
) -> None:
    """Whatever the numbers of epochs are; of a store that rests, all are in time."""
    store.commit(request(1, writer="old", batch_id=1))
    store.open_writer("opened")
    system.forward(2 * DAY_MS / 1000)
    store.commit(request(2, writer="new", batch_id=1))
    names = ["new", "nobody", "opened", "old"]
    now_ms = system.now_ms()
    assert idle_writers(store.version(), names, now_ms - DAY_MS) == ["opened", "old"]
    assert idle_writers(store.version(), names, now_ms - 3 * DAY_MS) == []
    assert store.forget_writers(names, DAY_MS) == ["old", "opened"]
    system.forward(2 * DAY_MS / 1000)
    assert store.forget_writers(names, DAY_MS) == ["new"]


def test_a_clock_that_is_ahead_forgets_no_active_writer(
    store: MetaStore, bucket: ModelBucket, system: FakeSystem
) -> None:
    """What was long ago is reckoned by the bucket's clock."""
    store.commit(request(1, writer="job", batch_id=1))
    ahead = FakeSystem()
    ahead.wall_ms = system.now_ms() + 1_800_000
    assert MetaStore(bucket, ahead).forget_writers(["job"], 600_000) == []
