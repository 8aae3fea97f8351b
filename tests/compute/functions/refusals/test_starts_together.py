"""Starts of one program at the same time: one has it in the end, and the others say so."""

from collections.abc import Callable
from typing import Any

import pytest

from support.applications.forward_system import ForwardSystem
from support.buckets.faulty_bucket import Call, FaultyBucket
from support.functions.accounts import cells
from support.store.stores import open_on
from tussock.compute import functions as fn
from tussock.statestore import InvalidOption, StateStore
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore

SECONDS = 30
FOLDER = "applications/p/input/"


def program(store: StateStore) -> fn.Runtime:
    return fn.Runtime(store, "p", [cells()], checkpoint=3600)


def add(runtime: fn.Runtime) -> Any:
    return runtime.send("cell", "a", "add", 1).result(SECONDS)


def killed(bucket: ObjectStore, *, adds: int) -> None:
    """Leave a program whose log has that many records which no commit holds."""
    store = open_on(bucket, ForwardSystem())
    first = program(store)
    first.start()
    assert [add(first) for _ in range(adds)] == list(range(1, adds + 1))


def faster(bucket: ObjectStore, then: Callable[[], object] = lambda: None) -> Callable[[], None]:
    """Another start of the program, which commits what the log has, and ends."""

    def run() -> None:
        with open_on(bucket, ForwardSystem()) as store, program(store) as runtime:
            assert runtime.query("cell", "a") == {"value": 3}
        then()

    return run


def reads_of(number: int) -> Callable[[Call], bool]:
    """Of an object of the log."""
    return lambda call: call.operation == "get" and call.path == f"{FOLDER}{number:020d}"


def test_a_start_whose_log_another_one_has_committed_is_fenced() -> None:
    """Story: it was `ObjectNotFound`, which no caller is to see."""
    bucket = open_bucket("memory://")
    killed(bucket, adds=3)
    faulty = FaultyBucket(bucket)
    with open_on(faulty, ForwardSystem()) as store:
        # The first read is that of the replay before the takeover, if there is one.
        runtime = program(store)
        faulty.stall(reads_of(2), faster(bucket))
        with pytest.raises(fn.ApplicationFenced, match="takes over its input log"):
            runtime.start()
        with program(store) as again:
            assert add(again) == 4


def test_objects_that_the_runner_before_still_deletes_are_no_concern() -> None:
    """Story: a start failed with `ObjectNotFound` while the former runner deleted what it had committed."""
    bucket = open_bucket("memory://")
    killed(bucket, adds=3)
    with open_on(bucket, ForwardSystem()) as store, program(store) as runtime:
        assert add(runtime) == 4
        paths = {info.path: bucket.get(info.path) for info in bucket.list(FOLDER)}
    there = {info.path for info in bucket.list(FOLDER)}
    gone = sorted(path for path in paths if path not in there)
    for path in gone:
        bucket.create(path, paths[path])
    faulty = FaultyBucket(bucket)
    faulty.stall(lambda call: call.operation == "get" and call.path == gone[0], lambda: bucket.delete(gone))
    with open_on(faulty, ForwardSystem()) as store, program(store) as runtime:
        assert add(runtime) == 5


def test_a_first_start_that_is_overtaken_is_fenced() -> None:
    """Story: it was `Fenced`, the error of the store."""
    bucket = open_bucket("memory://")
    faulty = FaultyBucket(bucket)
    with open_on(faulty, ForwardSystem()) as store:
        opened = store.open_writer

        def overtake() -> None:
            with open_on(bucket, ForwardSystem()) as other, program(other) as runtime:
                assert add(runtime) == 1

        def opening(name: str, *arguments: Any) -> Any:
            generation = opened(name, *arguments)
            # The next entry of the store's log is the first commit.
            faulty.stall(lambda call: call.operation == "create" and call.path.startswith("log/"), overtake)
            return generation

        store.open_writer = opening  # type: ignore[method-assign]
        with pytest.raises(fn.ApplicationFenced):
            program(store).start()


@pytest.mark.parametrize("adds", [0, 3])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("after", ["open_writer", "delta"])
def test_a_start_that_is_overtaken_before_it_reads_says_so_and_leaves_the_other_alone(
    adds: int, ends: bool, after: str
) -> None:
    """Story: it said that something else uses the name; or it took the log from the newer one, and neither went on."""
    bucket = open_bucket("memory://")
    if adds:
        killed(bucket, adds=adds)
    with open_on(bucket, ForwardSystem()) as store, open_on(bucket, ForwardSystem()) as others:
        other, taking = program(others), getattr(store, after)

        def overtake(*arguments: Any, **options: Any) -> Any:
            taken = taking(*arguments, **options)
            if after == "open_writer" or options.get("generation"):
                setattr(store, after, taking)
                other.start()
                assert add(other) == adds + 1
                if ends:
                    other.stop()
            return taken

        setattr(store, after, overtake)
        with pytest.raises(fn.ApplicationFenced, match="another runner has taken it over"):
            program(store).start()
        if not ends:
            assert add(other) == adds + 2
            other.stop()
    with open_on(bucket, ForwardSystem()) as store, program(store) as runtime:
        assert add(runtime) == adds + (2 if ends else 3)


def test_a_name_that_something_else_commits_under_is_refused_still() -> None:
    """No other runner is there then, of which a start could tell."""
    bucket = open_bucket("memory://")
    killed(bucket, adds=1)
    with open_on(bucket, ForwardSystem()) as store:
        with store.transaction(writer="p", batch_id=99) as tx:
            tx.table("cell").upsert([{"key": "z", "state": "{}"}])
        with pytest.raises(InvalidOption, match="something else uses the name as a writer"):
            program(store).start()


def test_a_store_of_a_backup_takes_a_log_that_counts_more_runners() -> None:
    """Its generations go on from where the backup was made, so those of the log are none to go by."""
    bucket, restored = open_bucket("memory://"), open_bucket("memory://")
    with open_on(bucket, ForwardSystem()) as store, program(store) as runtime:
        assert add(runtime) == 1
    backup = {info.path: bucket.get(info.path) for info in bucket.list("") if not info.path.startswith(FOLDER)}
    for at in range(3):
        # Each is killed before a commit.
        runtime = program(open_on(bucket, ForwardSystem()))
        runtime.start()
        assert add(runtime) == at + 2
    for path, data in [*backup.items(), *[(info.path, bucket.get(info.path)) for info in bucket.list(FOLDER)]]:
        restored.create(path, data)
    with open_on(restored, ForwardSystem()) as store, program(store) as runtime:
        assert add(runtime) == 5
