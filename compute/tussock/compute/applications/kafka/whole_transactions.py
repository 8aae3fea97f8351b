"""Keeps the transactions of a source database whole, where another topic says when each ends and what it has.

Debezium writes the events of a transaction into the topics of its tables, and into one more topic an END with the
number of events of each table. In a partition the events of a transaction stand together, and transactions follow each
other as they were committed. So a transaction is there once the partitions begin with as many of its events as END
says.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from tussock.compute.applications.errors import BadInput
from tussock.compute.applications.kafka.library import QuietLog, kafka_library
from tussock.statestore.base.logs import get_logger
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption

Buffer = deque[Any]
"""Messages of the library."""

__all__ = ["Endings", "SourceEnding", "WholeTransactions"]

log = get_logger("tussock.compute.applications.kafka")

ENDS_MAX = 10_000
"""That are known at once; more are read later."""
HELD_BYTES_MAX = 256 << 20
"""Of one transaction."""
SHORT_SECONDS = 30.0
"""After that time events that END has told of, and that are not there, will not come."""
CHUNK = 500
_TXID_AND_LSN = re.compile(r"(\d+):\d+")


class SourceEnding(NamedTuple):
    """What an END says."""

    transaction: str
    counts: Mapping[str, int]
    """By table, as the source names it, the number of events."""


class Endings(Protocol):
    """Reads what messages say of transactions."""

    def of_event(self, value: bytes | None) -> str | None:
        """The id of the transaction that an event is of, if it is of one."""

    def of_end(self, value: bytes | None) -> SourceEnding | None:
        """What an END says; `None` for other messages."""


class _End(NamedTuple):
    number: int
    """In the order of commits."""
    events: int
    place: tuple[int, int]
    """Its partition and offset."""


class WholeTransactions:
    """Of one run; says how many of the messages that wait can be given."""

    def __init__(self, system: System, topic: str, ends: str, options: Mapping[str, Any], endings: Endings) -> None:
        """`topic` has the events, and `ends` the endings; `options` are those of a consumer."""
        self._kafka = kafka_library()
        self._system = system
        self._topic = topic
        self._ends_topic = ends
        self._endings = endings
        self._consumer: Any = self._kafka.Consumer(
            {**options, "auto.offset.reset": "earliest", "enable.partition.eof": False}, logger=QuietLog()
        )
        self._known: OrderedDict[str, _End] = OrderedDict()
        """By transaction; none whose events were given."""
        self._next: dict[int, int] = {}
        self._numbers = 0
        self._ids: dict[int, deque[tuple[int, str | None]]] = {}
        """By partition, offset and transaction of each message that waits."""
        self._chosen: set[str] = set()
        """Those that were counted last."""
        self._short: tuple[str, int, float] | None = None
        """The transaction that lacks events, how many it has, and since when."""
        self.trouble = ""

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Read endings from there on; of a partition of which nothing is said, all.

        `InvalidOption` if the topic of endings does not exist; raises what the library raises.
        """
        found = self._consumer.list_topics(self._ends_topic, timeout=30.0).topics[self._ends_topic]
        if found.error is not None:
            if found.error.code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise InvalidOption(
                    f"topic {self._topic!r}: transactions={self._ends_topic!r} does not exist: let the connector have "
                    "provide.transaction.metadata=true, or leave it out"
                )
            raise self._kafka.KafkaException(found.error)
        self._next = {partition: offsets.get(partition, 0) for partition in found.partitions}
        place = self._kafka.TopicPartition
        beginning = self._kafka.OFFSET_BEGINNING
        self._consumer.assign(
            [place(self._ends_topic, one, offsets.get(one, beginning)) for one in sorted(found.partitions)]
        )
        self._known.clear()
        self._ids.clear()

    def offsets(self) -> dict[int, int]:
        """From where on endings have to be read again: those of transactions that are not in what was counted."""
        found = dict(self._next)
        for transaction, end in self._known.items():
            if transaction not in self._chosen:
                partition, offset = end.place
                found[partition] = min(found[partition], offset)
        return found

    def counts(self, buffers: Mapping[int, Buffer], ends: Mapping[int, int], room: int) -> dict[int, int]:
        """By partition, how many messages from its beginning on are whole transactions: about `room`, at least one.

        `ends`: of partitions whose end was seen, the offset of it.
        """
        waits = {partition: self._waiting(partition, buffer) for partition, buffer in buffers.items()}
        self._forget(waits)
        self._read_ends()
        taken = dict.fromkeys(waits, 0)
        while sum(taken.values()) < room:
            for partition, ids in waits.items():
                while taken[partition] < len(ids) and ids[taken[partition]] is None and sum(taken.values()) < room:
                    taken[partition] += 1
            chosen = self._choose(waits, taken, ends, buffers)
            if chosen is None:
                break
            for partition, ids in waits.items():
                taken[partition] += _run_of(ids, taken[partition], chosen)
            self._chosen.add(chosen)
        if not any(taken.values()):
            self._check_held(buffers)
        return taken

    def close(self) -> None:
        """Leave the brokers."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    # --- Within ------------------------------------------------------------------------------------------------------

    def _forget(self, waits: Mapping[int, list[str | None]]) -> None:
        """Endings of transactions that were given."""
        for transaction in self._chosen:
            if not any(transaction in ids for ids in waits.values()):
                self._known.pop(transaction, None)
        self._chosen = set()

    def _read_ends(self) -> None:
        while len(self._known) < ENDS_MAX and (messages := self._consumer.consume(CHUNK, 0)):
            for message in messages:
                if message.error() is None:
                    self._next[message.partition()] = message.offset() + 1
                    self._note(message)

    def _note(self, message: Any) -> None:
        ending = self._endings.of_end(message.value())
        if ending is None:
            return
        # Topics are named by a prefix and the table.
        events = sum(
            count for table, count in ending.counts.items() if self._topic == table or self._topic.endswith("." + table)
        )
        if events:
            self._numbers += 1
            place = message.partition(), message.offset()
            self._known[_bare(ending.transaction)] = _End(self._numbers, events, place)

    def _waiting(self, partition: int, buffer: Buffer) -> list[str | None]:
        known = self._ids.setdefault(partition, deque())
        first = buffer[0].offset() if buffer else 0
        while known and (not buffer or known[0][0] < first):
            known.popleft()
        while len(known) > len(buffer):
            known.pop()  # they are read once more, as the topic has more partitions
        for at in range(len(known), len(buffer)):
            transaction = self._endings.of_event(buffer[at].value())
            if transaction is None and buffer[at].value() is None and known:
                transaction = known[-1][1]  # a tombstone goes with its deletion
                known.append((buffer[at].offset(), transaction))
                continue
            known.append((buffer[at].offset(), None if transaction is None else _bare(transaction)))
        return [transaction for _, transaction in known]

    def _choose(
        self,
        waits: Mapping[int, list[str | None]],
        taken: Mapping[int, int],
        ends: Mapping[int, int],
        buffers: Mapping[int, Buffer],
    ) -> str | None:
        """The transaction that comes next, if it is whole."""
        fronts: set[str] = set()
        for partition, ids in waits.items():
            if taken[partition] < len(ids) and (front := ids[taken[partition]]) is not None:
                fronts.add(front)
        for one in fronts:
            if one not in self._known and self._is_over(one, waits, taken):
                return one
        ended = sorted((self._known[one].number, one) for one in fronts if one in self._known)
        if not ended:
            if fronts and len(self._known) >= ENDS_MAX:
                # What has come was committed after all that is known to have ended: their events were given long ago.
                for _ in range(ENDS_MAX // 2):
                    self._known.popitem(last=False)
            return None
        chosen = ended[0][1]
        there = 0
        for partition, ids in waits.items():
            begin = taken[partition]
            run = range(begin, begin + _run_of(ids, begin, chosen))
            # Tombstones are no events.
            there += sum(buffers[partition][at].value() is not None for at in run)
        if there >= self._known[chosen].events or self._is_short(chosen, there, ends, buffers):
            self._short, self.trouble = None, ""
            return chosen
        return None

    def _is_over(self, one: str, waits: Mapping[int, list[str | None]], taken: Mapping[int, int]) -> bool:
        """Whether one of which there is no END is over all the same: another that follows it has ended."""
        return any(
            other != one and other in self._known
            for partition, ids in waits.items()
            if taken[partition] < len(ids) and ids[taken[partition]] == one
            for other in ids[taken[partition] :]
        )

    def _is_short(self, one: str, there: int, ends: Mapping[int, int], buffers: Mapping[int, Buffer]) -> bool:
        """Whether what it lacks will not come: it was before the beginning, or is no longer kept."""
        now = self._system.monotonic()
        if self._short is None or self._short[:2] != (one, there):
            self._short = one, there, now
        events = self._known[one].events
        self.trouble = f"{there} of {events} events of transaction {one} are there"
        is_at_end = all(not buffer or buffer[-1].offset() < ends.get(at, 0) for at, buffer in buffers.items())
        if not is_at_end or now - self._short[2] < SHORT_SECONDS:
            return False
        log.warning("events of a transaction are gone", topic=self._topic, transaction=one, there=there, events=events)
        return True

    def _check_held(self, buffers: Mapping[int, Buffer]) -> None:
        held = sum(len(one.value() or b"") for buffer in buffers.values() for one in buffer)
        if held > HELD_BYTES_MAX:
            raise BadInput(
                f"topic {self._topic!r}: {held:,} bytes wait for the end of a transaction; at most {HELD_BYTES_MAX:,} "
                "are held: leave out transactions=, so that large ones are split",
                self._topic,
            )


def _run_of(ids: list[str | None], begin: int, transaction: str) -> int:
    """How many messages from `begin` on are of a transaction."""
    at = begin
    while at < len(ids) and ids[at] == transaction:
        at += 1
    return at - begin


def _bare(transaction: str) -> str:
    """Of PostgreSQL the number alone: each event has its own position behind it."""
    found = _TXID_AND_LSN.fullmatch(transaction)
    return found[1] if found else transaction
