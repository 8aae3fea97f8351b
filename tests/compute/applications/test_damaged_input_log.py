"""Damage of the input log: an error that names the object, and nothing is changed.

The log here is that of a runner that died without a commit: five batches are in it, and in no table.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from support.buckets.faulty_bucket import FaultyBucket
from support.procedures.histories import Fuse, QuickSystem
from support.procedures.interpreter import Interpreter
from support.procedures.oracle import Request
from support.procedures.plans import Plan, make_plan
from support.procedures.programs import NAME, Program, outcome_of, rows_of, tables_of
from support.store.stores import open_on
from tussock.compute.applications.records import VERSION
from tussock.statestore import TussockError
from tussock.statestore.buckets import open_bucket
from tussock.statestore.contract.object_store import ObjectStore
from tussock.statestore.errors import CorruptLog, NewerFormat

FOLDER = f"applications/{NAME}/input/"
HEAD_BYTES = 13
"""Magic (4 bytes), version (1), length (4), checksum (4); then the body."""
PARTS = {"magic": range(4), "version": range(4, 5), "length": range(5, 9), "checksum": range(9, HEAD_BYTES)}
BATCHES = [Request("p0", True, number, (number, 2 * number), "dicts") for number in range(1, 6)]


class Left(NamedTuple):
    """What the dead runner left."""

    bucket: ObjectStore
    place: str | None
    """Where the input log is, if not in the bucket of the store."""
    log: ObjectStore
    """The bucket of the log."""
    plan: Plan
    objects: list[str]
    """Of the log, ascending: the takeover, then the batches."""


def log_objects(bucket: ObjectStore) -> list[str]:
    return [info.path for info in bucket.list(FOLDER)]


def leave(bucket: ObjectStore, place: str | None, seed: int = 2) -> Left:
    """A log of five records in five objects."""
    plan = make_plan(random.Random(seed))
    fuse = Fuse(10**9, is_done=False, hiccups={})
    with suppress(Exception), open_on(FaultyBucket(bucket, fuse), QuickSystem()) as store:
        program = Program(plan, store, group_commit=None, checkpoint=3600, input=place)
        program.app.start()
        for one in BATCHES:
            outcome_of(program.app.submit("p0", rows_of(list(one.given)), batch_id=one.batch_id))
        fuse.blow()
        with suppress(Exception):
            program.app.stop()
    log = bucket if place is None else open_bucket(place)
    return Left(bucket, place, log, plan, log_objects(log))


@pytest.fixture(params=["store", "folder"])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Left:
    """With the log in the store's bucket, or in a folder beside it."""
    found = leave(open_bucket("memory://"), (tmp_path / "input").as_uri() if request.param == "folder" else None)
    assert len(found.objects) >= 1 + len(BATCHES)
    return found


def put(bucket: ObjectStore, path: str, data: bytes) -> None:
    bucket.put(path, data)


def start(left: Left) -> None:
    """Another runner; on a log that is whole it has all batches."""
    with open_on(left.bucket, QuickSystem()) as store:
        program = Program(left.plan, store, checkpoint=3600, input=left.place)
        with program.app:
            dump = tables_of(outcome_of(program.app.call_async("dump")))
    expected = Interpreter(left.plan)
    for one in BATCHES:
        one.do(expected)
    dump.pop("drawn")
    assert dump == expected.tables


def is_refused(left: Left, path: str, error: type[TussockError], *, name: str | None = None) -> str:
    """The start raises that error, which names the object, and changes neither the log nor a row; what it says."""
    before = {one: left.log.get(one) for one in log_objects(left.log)}
    with open_on(left.bucket, QuickSystem()) as store:
        tables = [one for one in store.tables() if one not in ("_applications",)]
        rows = {one: [batch.to_pylist() for batch in store.table(one).read()] for one in tables}
        with pytest.raises(error) as caught:
            Program(left.plan, store, checkpoint=3600, input=left.place).app.start()
        assert (name or path) in str(caught.value)
        after = {one: [batch.to_pylist() for batch in store.table(one).read()] for one in tables}
    assert after == rows
    assert {one: left.log.get(one) for one in log_objects(left.log)} == before
    return str(caught.value)


WHICH = pytest.mark.parametrize("at", [0, 1, 3, -1], ids=["takeover", "first", "middle", "last"])


@WHICH
@pytest.mark.parametrize(
    "cut",
    [lambda _: 0, lambda _: 4, lambda _: HEAD_BYTES - 1, lambda _: HEAD_BYTES, lambda n: n // 2, lambda n: n - 1],
    ids=["empty", "in the head", "head but one byte", "no body", "half", "all but one byte"],
)
def test_a_torn_end(left: Left, at: int, cut: Callable[[int], int]) -> None:
    """An object is shorter than it was written; once it is put back, nothing is missing."""
    path = left.objects[at]
    whole = left.log.get(path)
    put(left.log, path, whole[: cut(len(whole))])
    assert "cut off" in is_refused(left, path, CorruptLog)
    put(left.log, path, whole)
    start(left)


@WHICH
def test_bytes_after_the_end(left: Left, at: int) -> None:
    """An object is longer than it was written."""
    path = left.objects[at]
    put(left.log, path, left.log.get(path) + b"\0")
    is_refused(left, path, CorruptLog)


@WHICH
@pytest.mark.parametrize("part", [*PARTS, "body"])
def test_a_flipped_bit(left: Left, at: int, part: str) -> None:
    """Any bit of the head, and one in each byte of the body."""
    path = left.objects[at]
    whole = left.log.get(path)
    places = PARTS.get(part, range(HEAD_BYTES, len(whole)))
    step = 1 if part in PARTS else max(1, len(whole) // 12)
    for place in places[::step]:
        for bit in range(8) if part in PARTS else (place % 8,):
            if part == "version" and bit == 0:
                continue  # the test below
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            put(left.log, path, bytes(damaged))
            # The flip may make another known version of it; then the checksum, which covers that one's byte, tells.
            is_newer = part == "version" and damaged[place] > VERSION
            is_refused(left, path, NewerFormat if is_newer else CorruptLog)
    put(left.log, path, whole)
    start(left)


def test_a_version_that_never_was(left: Left) -> None:
    """Version 0, one flipped bit away from 1."""
    path = left.objects[1]
    damaged = bytearray(left.log.get(path))
    damaged[4] = 0
    put(left.log, path, bytes(damaged))
    is_refused(left, path, CorruptLog)


@pytest.mark.parametrize("at", [0, 1, 3, -2], ids=["takeover", "first", "middle", "last but one"])
def test_a_missing_object(left: Left, at: int) -> None:
    """The error names the object, and the next one that is there."""
    path, following = left.objects[at], left.objects[at + 1]
    whole = left.log.get(path)
    left.log.delete([path])
    assert following in is_refused(left, path, CorruptLog)
    put(left.log, path, whole)
    start(left)


def test_objects_in_the_place_of_others(left: Left) -> None:
    """Story: each is whole, and of this log, so the procedures were blamed as not deterministic.

    No rule of the records' numbers tells, as some deaths leave gaps in them.
    """
    for one, other in ((0, 1), (1, 2), (2, 4)):
        first, second = left.objects[one], left.objects[other]
        of_first, of_second = left.log.get(first), left.log.get(second)
        put(left.log, first, of_second)
        assert f"content of object {other + 1}" in is_refused(left, first, CorruptLog)
        put(left.log, second, of_first)
        assert f"content of object {other + 1}" in is_refused(left, first, CorruptLog)
        put(left.log, first, of_first)
        assert f"content of object {one + 1}" in is_refused(left, second, CorruptLog)
        put(left.log, second, of_second)
    start(left)


def test_an_object_that_is_there_twice(left: Left) -> None:
    """Its copy has the next number, which the start would take."""
    last = int(left.objects[-1].removeprefix(FOLDER))
    path = f"{FOLDER}{last + 1:020d}"
    put(left.log, path, left.log.get(left.objects[-1]))
    assert f"content of object {last}" in is_refused(left, path, CorruptLog)
    left.log.delete([path])
    start(left)


@pytest.mark.parametrize("name", ["notes.txt", "1", "0000000000000000000x", f"{3:019d}", f"{3:020d}.tmp"])
def test_a_foreign_object_in_the_folder(left: Left, name: str) -> None:
    """Its name is none of a log."""
    path = FOLDER + name
    put(left.log, path, b"something")
    is_refused(left, path, CorruptLog)
    left.log.delete([path])
    start(left)


def test_a_foreign_object_by_the_name_of_the_next_one(left: Left) -> None:
    """Its bytes are none of a log."""
    number = int(left.objects[-1].removeprefix(FOLDER)) + 1
    path = f"{FOLDER}{number:020d}"
    put(left.log, path, b"not of a log, and long enough")
    assert "foreign" in is_refused(left, path, CorruptLog)
    left.log.delete([path])
    start(left)


def test_a_foreign_object_by_a_later_name(left: Left) -> None:
    """The objects in between look as if they were lost."""
    number = int(left.objects[-1].removeprefix(FOLDER)) + 1
    path = f"{FOLDER}{number + 5:020d}"
    put(left.log, path, left.log.get(left.objects[-1]))
    assert path in is_refused(left, f"{FOLDER}{number:020d}", CorruptLog)


@WHICH
def test_an_object_of_another_applications_log(left: Left, at: int) -> None:
    """The same name, in another store: its uid is another one."""
    other = leave(open_bucket("memory://"), None)
    path = left.objects[at]
    whole = left.log.get(path)
    put(left.log, path, other.log.get(other.objects[at]))
    assert "another application" in is_refused(left, path, CorruptLog)
    put(left.log, path, whole)
    start(left)


def test_the_log_of_another_application(left: Left) -> None:
    """All of it, from another store."""
    other = leave(open_bucket("memory://"), None)
    left.log.delete(left.objects)
    for path in other.objects:
        put(left.log, path, other.log.get(path))
    assert "another application" in is_refused(left, other.objects[0], CorruptLog)


@pytest.mark.parametrize("obstacle", ["folder", "link"])
def test_what_takes_the_next_number_and_is_no_object_is_named(tmp_path: Path, obstacle: str) -> None:
    """A start tried that number for ever: it could not be created, and no list had it."""
    left = leave(open_bucket(tmp_path.as_uri()), None)
    following = f"{FOLDER}{len(left.objects) + 1:020d}"
    if obstacle == "folder":
        (tmp_path / following).mkdir()
    else:
        (tmp_path / following).symlink_to(tmp_path / "nowhere")
    told = f"cannot go on: .*{following}: .* lies there, which no store makes"
    with open_on(left.bucket, QuickSystem()) as store, pytest.raises(CorruptLog, match=told):
        Program(left.plan, store).app.start()
    if obstacle == "folder":
        (tmp_path / following).rmdir()
    else:
        (tmp_path / following).unlink()
    with open_on(left.bucket, QuickSystem()) as store, Program(left.plan, store).app as app:
        assert len(app.trace()) >= len(BATCHES)
