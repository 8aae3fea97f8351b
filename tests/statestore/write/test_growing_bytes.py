"""What is uploaded while it is made: in order, bounded, and nobody waits for somebody who is gone."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tussock.statestore.base.system import RealSystem
from tussock.statestore.sst.encoded_sst import GrowingBytes

SECONDS = 30


@pytest.fixture
def growing() -> GrowingBytes:
    return GrowingBytes(RealSystem())


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], object]], threading.Thread]]:
    """Starts threads that have to end."""
    threads: list[threading.Thread] = []

    def start(work: Callable[[], object]) -> threading.Thread:
        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()
        return threads[-1]

    yield start
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()


def test_parts_come_in_order(growing: GrowingBytes, beside: Callable[..., threading.Thread]) -> None:
    """All of them, however the two threads take turns."""
    taken: list[bytes] = []
    beside(lambda: taken.extend(growing))
    for number in range(100):
        growing.add([b"%d" % number, b","])
    growing.end()
    while len(taken) < 200 and threading.active_count() > 1:
        pass
    assert b"".join(taken) == b"".join(b"%d," % number for number in range(100))


def test_nothing_waits_while_nobody_takes(growing: GrowingBytes) -> None:
    """The threads of an upload may be busy with objects whose makers wait for this one."""
    for _ in range(50):
        growing.add([b"x"])
    growing.end()
    assert len(list(growing)) == 50


def test_what_was_handed_on_is_bounded(growing: GrowingBytes, beside: Callable[..., threading.Thread]) -> None:
    """A slow taker holds up the maker, not more and more of memory."""
    parts = iter(growing)
    growing.add([b"first"])
    assert next(parts) == b"first"
    added: list[int] = []

    def make() -> None:
        for number in range(10):
            growing.add([b"x"])
            added.append(number)
        growing.end()

    maker = beside(make)
    maker.join(0.3)
    assert maker.is_alive()
    assert len(added) == 2
    assert len(list(parts)) == 10


@pytest.mark.parametrize("added", [0, 1, 2])
def test_a_taker_of_what_is_given_up_is_told(growing: GrowingBytes, added: int) -> None:
    """Half of an object must not become one."""
    for _ in range(added):
        growing.add([b"x"])
    growing.give_up()
    with pytest.raises(RuntimeError, match="before it was whole"):
        list(growing)


def test_a_waiting_taker_is_told(growing: GrowingBytes, beside: Callable[..., threading.Thread]) -> None:
    """Its maker failed meanwhile."""
    told = threading.Event()

    def take() -> None:
        with pytest.raises(RuntimeError):
            list(growing)
        told.set()

    beside(take)
    growing.add([b"x"])
    growing.give_up()
    assert told.wait(SECONDS)


def test_a_maker_does_not_wait_for_a_taker_that_is_gone(
    growing: GrowingBytes, beside: Callable[..., threading.Thread]
) -> None:
    """A put that failed takes no more; what is added goes nowhere."""
    parts = iter(growing)
    growing.add([b"x"])
    next(parts)

    def make() -> None:
        for _ in range(10):
            growing.add([b"x"])

    maker = beside(make)
    maker.join(0.1)
    assert maker.is_alive()
    growing.give_up()
    maker.join(SECONDS)
    assert not maker.is_alive()
