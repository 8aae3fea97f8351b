"""No error of a library leaves the store: any call with any arguments does what it says or raises a `TussockError`.

What was asked for and refused has stored nothing, and what was taken can be read. `test_wrong_arguments.py` tries each
argument alone; here most arguments are right, so that calls get far.
"""

import enum
import inspect
import random
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from support.depth import DEPTH
from support.service.platforms import QUIET, Platform
from support.store.any_calls import WRITES, Face, argument_for, outcome
from support.store.nasty_values import Planted
from tussock.statestore import StateStore, TussockError, clone, connect, repair_clock, restore

CALLS = 150
OPENERS: list[Any] = [connect, clone, restore, repair_clock]
_names = count()


def live(face: Face, seed: int, calls: int) -> None:
    """Many calls on one store, each checked."""
    for number in range(calls):
        call = face.draw()
        before = face.contents() if call.name.endswith(WRITES) else None
        try:
            error = outcome(call)
        except BaseException as raw:
            raise AssertionError(f"seed {seed}, call {number}: {call} lets out {raw!r:.300}") from raw
        if error is not None and before is not None:
            assert face.contents() == before, f"seed {seed}, call {number}: {call} was refused and stored something"
    face.contents()
    face.check_changes()


@pytest.mark.parametrize("seed", range(6 * DEPTH))
def test_any_call_does_what_it_says_or_raises_a_named_error(seed: int) -> None:
    """A seed is a store, and 150 calls of any part of it."""
    face = Face(seed)
    live(face, seed, CALLS)
    face.close()


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_any_call_over_the_wire_does_or_raises_a_named_error(seed: int) -> None:
    """With a meta service what is asked for has to be told in its protocol, too."""
    with Platform(f"memory://any-call-{next(_names)}", picker=QUIET) as platform:
        face = Face(seed, platform.url)
        live(face, seed, CALLS)
        face.close()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1000 + 10 * DEPTH))
def test_any_call_for_longer(seed: int) -> None:
    """The same with thousands of calls."""
    face = Face(seed)
    live(face, seed, 2000)
    face.close()


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_any_call_on_a_closed_store_raises_a_named_error(seed: int) -> None:
    """Whatever else is wrong with it."""
    face = Face(seed)
    face.store.close()
    for number in range(CALLS):
        call = face.draw()
        try:
            outcome(call)
        except BaseException as raw:
            raise AssertionError(f"seed {seed}, call {number}: {call} lets out {raw!r:.300}") from raw


@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_any_options_open_a_store_that_works_or_are_named(seed: int) -> None:
    """`connect`, `clone`, `restore` and `repair_clock`, some of whose arguments are any."""
    chance = random.Random(seed)
    with connect(f"memory://any-option-{next(_names)}", compaction=False) as source:
        source.create_table("a")
        source.backup("b")
        for _ in range(200):
            call = chance.choice(OPENERS)
            fresh = f"memory://any-option-{next(_names)}"
            good = {"url": fresh, "source": source.url, "target": fresh, "backup": "b"}
            arguments = {}
            for parameter in inspect.signature(call).parameters.values():
                is_needed = parameter.default is parameter.empty
                if parameter.name != "system" and (is_needed or chance.random() < 0.2):
                    is_good = parameter.name in good and chance.random() < 0.8
                    arguments[parameter.name] = (
                        good[parameter.name] if is_good else argument_for(parameter.name, chance)
                    )
            try:
                opened = call(**arguments)
            except (TussockError, Planted) as error:
                str(error)
                continue
            except BaseException as raw:
                raise AssertionError(f"seed {seed}: {call.__name__} lets out {raw!r:.300}") from raw
            if isinstance(opened, StateStore):
                _use(opened)


def _use(store: StateStore) -> None:
    with store:
        table = store.create_table("new")
        epoch = store.new_epoch()
        table.upsert(pa.table({"key": [b"a"], "value": [b"1"]}), epoch)
        store.commit_epoch(epoch)
        assert table.get(b"a") == b"1"
        store.vacuum()


def test_names_and_numbers_of_subclasses_are_taken_as_what_they_are(store: StateStore, other: StateStore) -> None:
    """A name out of an array of NumPy, or of an enumeration of strings, once failed in the encoder of the log."""
    name, source = np.str_("t"), Kind.ORDERS
    table = store.create_table(name, pa.schema([(np.str_("k"), pa.int64())]), [np.str_("k")])
    epoch = store.new_epoch()
    table.upsert([{"k": 1}], epoch)
    generation = store.open_writer(source)
    committed = store.commit_epoch(
        epoch, writer=source, batch_id=Number.ONE, expect={name: 0}, generation=generation, source=name
    )
    assert other.committed_batch("orders", 1, "t") == committed
    other.wait_epoch(committed)
    assert other.table("t").get(1) == {"k": 1}
    store.backup(name, source)
    assert [backup.name for backup in other.backups()] == ["t"]


class Kind(enum.StrEnum):
    """Names as programs keep them."""

    ORDERS = "orders"


class Number(enum.IntEnum):
    """Numbers likewise."""

    ONE = 1
