"""Reads the messages of a topic by offsets: forward while the application runs, and again in a replay.

No consumer group decides who reads what, and no offset is committed to Kafka: the application's state says how far it
is. Messages wait in a buffer for each partition, so that a batch is exactly [from, to) of each, the first time and
later; in a batch they are in the order of partition and offset.
"""

from collections import deque
from typing import Any

import msgspec

from tussock.compute.applications.errors import BadInput, InputLost
from tussock.compute.applications.feeds.feed import FedBatch, OnBad
from tussock.compute.applications.kafka.library import QuietLog, kafka_library
from tussock.compute.applications.kafka.messages import KafkaMessage
from tussock.compute.applications.kafka.topic_client import TopicClient
from tussock.compute.applications.kafka.topic_places import TopicPosition, TopicSpan
from tussock.compute.applications.kafka.topic_reader import Decoder, Reading
from tussock.compute.applications.kafka.whole_transactions import Endings, WholeTransactions
from tussock.statestore.base.damage import UNREADABLE
from tussock.statestore.base.system import System
from tussock.statestore.errors import InvalidOption, WaitTimeout

__all__ = ["KafkaSource"]

CALL_SECONDS = 30.0
CHECK_SECONDS = 5.0
"""Between two looks at the topic: whether it is still the same, and has more partitions."""
TRUST_SECONDS = 0.2
"""So old may the look be when messages are given: those that came since could be of another topic of the name."""
RETRY_SECONDS = 1.0
CHUNK = 500


class KafkaSource:
    """One run's reader of a topic."""

    def __init__(
        self, feed: Reading, decoder: Decoder, system: System, what: str, endings: Endings | None = None
    ) -> None:
        """`endings` reads what messages say of transactions, if these are to be kept whole."""
        self._kafka = kafka_library()
        self._feed = feed
        self._system = system
        self._what = what
        self._named = f"topic {feed.topic!r} at {feed.servers}"
        self._decoder = decoder
        self.schema = decoder.schema
        self.trouble = ""
        options = {
            "queued.max.messages.kbytes": 32_768,
            **feed.config,
            "bootstrap.servers": feed.servers,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        # The library wants a name, though there is no group.
        options.setdefault("group.id", "tussock-feed")
        self._consumer: Any = self._kafka.Consumer({**options, "error_cb": self._note_error}, logger=QuietLog())
        self._client = TopicClient(system, feed.servers, feed.topic, options)
        self._offsets: dict[int, int] = {}
        """Of each partition, the next one to give."""
        self._buffers: dict[int, deque[Any]] = {}
        self._ends: dict[int, int] = {}
        """Of a partition whose end was seen, the offset of that end; all before it is in the buffer or given."""
        self._checked_at = self._failed_at = 0.0
        self._whole: WholeTransactions | None = None
        try:
            self._id, self._partitions = self._topic_now()
            if endings is not None and feed.transactions is not None:
                self._whole = WholeTransactions(system, feed.topic, feed.transactions, options, endings)
                self._seek_endings({})
        except BaseException:
            self.close()
            raise

    def begin(self) -> bytes:
        """Where the option `start` says, in all partitions."""
        kinds = self._kafka.admin.OffsetSpec
        spec = kinds.earliest() if self._feed.start == "earliest" else kinds.latest()
        return self._pack(self._ask_offsets(spec))

    def seek(self, position: bytes) -> None:
        """Read on there."""
        found = self._unpack(position, TopicPosition)
        self._check_id(found.id)
        # A partition that is new since then is read from its first message on.
        wanted = {partition: found.offsets.get(partition, 0) for partition in self._partitions}
        if wanted != self._offsets:
            self._assign(wanted)
            self._seek_endings(found.endings)
        self._check_kept(wanted)

    def read(self, seconds: float) -> FedBatch | None:
        """The next messages of all partitions."""
        self._look(CHECK_SECONDS)
        if not any(self._buffers.values()):
            self._fill(1, seconds)
        if not any(self._buffers.values()):
            return None
        until = self._system.monotonic() + self._feed.batch_seconds
        rows, nbytes = self._buffered()
        while rows < self._feed.batch_rows and nbytes < self._feed.batch_bytes:
            left = until - self._system.monotonic()
            if left <= 0 or not self._fill(min(CHUNK, self._feed.batch_rows - rows), left):
                break
            rows, nbytes = self._buffered()
        if not self._look(TRUST_SECONDS) or not any(self._buffers.values()):
            return None
        counts, parts = self._counts(seconds), {}
        for partition, buffer in sorted(self._buffers.items()):
            count = counts.get(partition, 0)
            if count:
                is_all = count == len(buffer)
                behind = buffer[count - 1].offset() + 1
                # Behind the last message may be marks of transactions, which are no messages.
                end = max(behind, self._ends.get(partition, 0)) if is_all else behind
                parts[partition] = (self._offsets[partition], end, count)
        if not parts:
            return None
        endings = {} if self._whole is None else self._whole.offsets()
        return self._batch(TopicSpan("kafka", self._feed.topic, self._id, parts, endings), self._feed.on_bad)

    def again(self, span: bytes) -> FedBatch:
        """The same messages as the first time."""
        wanted = self._unpack(span, TopicSpan)
        self._check_id(wanted.id)
        begins = {partition: first for partition, (first, _, _) in wanted.parts.items()}
        if any(self._offsets.get(partition) != first for partition, first in begins.items()):
            self._assign({**self._offsets, **begins})
            self._check_kept(begins)
        until = self._system.monotonic() + CALL_SECONDS
        while missing := [
            partition for partition, (_, _, count) in wanted.parts.items() if len(self._buffers[partition]) < count
        ]:
            for partition in missing:
                first, end, count = wanted.parts[partition]
                if self._ends.get(partition, 0) >= end:
                    raise self._gone(partition, first, end, f"{len(self._buffers[partition])} of {count} are left")
            if self._fill(CHUNK, 0.5):
                until = self._system.monotonic() + CALL_SECONDS
            elif self._system.monotonic() > until:
                raise self._timeout(self.trouble or "no message came")
        for partition, (first, end, count) in wanted.parts.items():
            if self._buffers[partition][count - 1].offset() >= end:
                raise self._gone(partition, first, end, f"fewer than {count} are left")
        # What was skipped in the first run is skipped, whatever the feed is declared for now.
        return self._batch(wanted, on_bad="skip")

    def after(self, position: bytes, span: bytes) -> bytes:
        """Behind the span, and elsewhere as before."""
        read = self._unpack(span, TopicSpan)
        before = self._unpack(position, TopicPosition)
        offsets = before.offsets | {partition: end for partition, (_, end, _) in read.parts.items()}
        return self._pack(offsets, read.endings or before.endings)

    def standing(self) -> bytes:
        """Behind marks of transactions that end a partition."""
        return self._pack(
            {
                partition: offset if self._buffers[partition] else max(offset, self._ends.get(partition, 0))
                for partition, offset in self._offsets.items()
            },
            {} if self._whole is None else self._whole.offsets(),
        )

    def release(self, position: bytes) -> None:
        """Nothing: what Kafka keeps is for its retention to say."""

    def newest(self) -> dict[int, int]:
        """The end of each partition, also of those that are new, for readers with `read_committed`."""
        if not self._look(0.0):
            raise self._timeout(self.trouble)
        return self._ask_offsets(self._kafka.admin.OffsetSpec.latest())

    def has_reached(self, mark: Any) -> bool:
        """Whether all partitions were read to there."""
        return not any(self._buffers.values()) and all(
            max(self._offsets.get(partition, 0), self._ends.get(partition, 0)) >= end for partition, end in mark.items()
        )

    def close(self) -> None:
        """Leave the brokers."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        if self._whole is not None:
            self._whole.close()

    # --- Messages ----------------------------------------------------------------------------------------------------

    def _batch(self, span: TopicSpan, on_bad: OnBad) -> FedBatch:
        messages = []
        for partition, (_, _, count) in sorted(span.parts.items()):
            buffer = self._buffers[partition]
            messages += [_message(buffer[at]) for at in range(count)]
        rows, bad = self._decoder.table(messages)
        if bad and on_bad == "stop":
            raise BadInput(
                f"{self._what}: the message at {bad[0].origin} (topic/partition/offset) is no row: {bad[0].cause}; "
                "nothing of it was used, and it comes again at the next start: mend the schema, or declare the feed "
                "with on_bad='skip'",
                self._feed.topic,
                bad[0].origin,
            )
        for partition, (_, end, count) in span.parts.items():
            for _ in range(count):
                self._buffers[partition].popleft()
            self._offsets[partition] = end
        return FedBatch(msgspec.msgpack.encode(span), rows, bad)

    def _counts(self, seconds: float) -> dict[int, int]:
        """By partition, how many of the messages that wait are the next batch."""
        if self._whole is not None:
            try:
                found = self._whole.counts(self._buffers, self._ends, self._feed.batch_rows)
            except self._kafka.KafkaException as error:
                self.trouble = str(error.args[0])
                return {}
            if not any(found.values()):
                self._fill(CHUNK, seconds)
            self.trouble = self.trouble or self._whole.trouble
            return found
        room, counts = self._feed.batch_rows, {}
        for partition, buffer in sorted(self._buffers.items()):
            counts[partition] = min(len(buffer), room)
            room -= counts[partition]
        return counts

    def _seek_endings(self, offsets: dict[int, int]) -> None:
        if self._whole is None:
            return
        try:
            self._whole.seek(offsets)
        except self._kafka.KafkaException as error:
            raise self._timeout(str(error.args[0])) from error

    def _fill(self, most: int, seconds: float) -> bool:
        """Messages into the buffers; whether anything came."""
        kinds = self._kafka.KafkaError
        try:
            messages = self._consumer.consume(most, seconds)
        except self._kafka.KafkaException as error:
            self._fail(error.args[0], None)
            return False
        for message in messages:
            failed = message.error()
            if failed is None:
                self._buffers[message.partition()].append(message)
                self.trouble = ""
            elif failed.code() == kinds._PARTITION_EOF:  # noqa: SLF001 - its name there
                self._ends[message.partition()] = message.offset()
                self.trouble = ""
            else:
                self._fail(failed, message)
        return bool(messages)

    def _fail(self, error: Any, message: Any) -> None:
        kinds = self._kafka.KafkaError
        if error.code() in (kinds._AUTO_OFFSET_RESET, kinds.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - its name there
            self._check_id(self._id)
            self._check_kept(self._offsets)
            partition = message.partition() if message is not None else -1
            raise self._gone(partition, self._offsets.get(partition, -1), -1, str(error))
        if error.code() in (kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_TOPIC, kinds.UNKNOWN_TOPIC_ID):  # noqa: SLF001
            self._checked_at = 0.0
        self.trouble = str(error)

    def _note_error(self, error: Any) -> None:
        self.trouble = str(error)

    def _buffered(self) -> tuple[int, int]:
        counts = [len(buffer) for buffer in self._buffers.values()]
        return sum(counts), sum(len(one.value() or b"") for buffer in self._buffers.values() for one in buffer)

    def _assign(self, offsets: dict[int, int]) -> None:
        places = [self._kafka.TopicPartition(self._feed.topic, partition, at) for partition, at in offsets.items()]
        self._consumer.assign(places)
        self._offsets = dict(offsets)
        self._buffers = {partition: deque() for partition in offsets}
        self._ends = {}

    # --- The topic ---------------------------------------------------------------------------------------------------

    def _look(self, age: float) -> bool:
        """Whether the topic was the same one at most `age` seconds ago; `InputLost` if it is another one."""
        now = self._system.monotonic()
        if now - self._checked_at < age:
            return True
        if now - self._failed_at < (age and RETRY_SECONDS):
            return age >= CHECK_SECONDS
        try:
            found, partitions = self._topic_now(is_first=False)
        except WaitTimeout as error:
            self.trouble = self.trouble or str(error)
            self._failed_at = self._system.monotonic()
            # What is read meanwhile is not given.
            return age >= CHECK_SECONDS
        self._check_same(self._id, found)
        self.trouble = ""
        self._partitions = partitions
        fresh = {partition: 0 for partition in partitions if partition not in self._offsets}
        if fresh:
            # Buffered messages are read again: an assignment replaces the one before.
            self._assign({**self._offsets, **fresh})
        return True

    def _topic_now(self, *, is_first: bool = True) -> tuple[str, list[int]]:
        kinds = self._kafka.KafkaError
        try:
            found = self._client.describe(CALL_SECONDS if is_first else 2.0)
        except self._kafka.KafkaException as error:
            if error.args[0].code() in (kinds.UNKNOWN_TOPIC_OR_PART, kinds.TOPIC_EXCEPTION):
                if is_first:
                    raise InvalidOption(f"{self._what}: {self._named} does not exist") from error
                raise InputLost(
                    f"{self._what}: {self._named} was deleted while the application read it", self._feed.topic
                ) from error
            raise self._timeout(str(error.args[0])) from error
        self._checked_at = self._system.monotonic()
        return found

    def _ask_offsets(self, spec: Any) -> dict[int, int]:
        try:
            return self._client.offsets(spec, self._partitions, CALL_SECONDS)
        except self._kafka.KafkaException as error:
            raise self._timeout(str(error.args[0])) from error

    def _check_id(self, wanted: str) -> None:
        found, self._partitions = self._topic_now()
        self._check_same(wanted, found)

    def _check_same(self, wanted: str, found: str) -> None:
        if wanted != found:
            raise InputLost(
                f"{self._what}: {self._named} was deleted and made again since the application read it (id {wanted}, "
                f"now {found}), and its offsets mean other messages: what it had is lost; to begin with the new topic, "
                "give the feed another name=",
                self._feed.topic,
            )

    def _check_kept(self, wanted: dict[int, int]) -> None:
        """Whether what comes from these offsets on is there; before they begin or behind the end there is nothing."""
        lows = self._ask_offsets(self._kafka.admin.OffsetSpec.earliest())
        for partition, offset in wanted.items():
            if partition not in lows:
                raise self._gone(partition, offset, -1, "there is no such partition")
            if offset < lows[partition]:
                raise self._gone(partition, offset, lows[partition], f"the oldest that is kept is {lows[partition]}")

    def _gone(self, partition: int, first: int, end: int, why: str) -> InputLost:
        until = f" to {end - 1}" if end > first else ""
        return InputLost(
            f"{self._what}: {self._named}, partition {partition}: offsets {first}{until} are to be read, and {why}: "
            "the topic's retention has deleted what the application did not read in time; to begin anew, give the feed "
            "another name=",
            self._feed.topic,
            partition,
            first,
        )

    def _timeout(self, why: str) -> WaitTimeout:
        return WaitTimeout(f"{self._what}: {self._named} does not answer: {why}")

    # --- Bytes -------------------------------------------------------------------------------------------------------

    def _pack(self, offsets: dict[int, int], endings: dict[int, int] | None = None) -> bytes:
        ordered = dict(sorted(offsets.items()))
        return msgspec.msgpack.encode(TopicPosition("kafka", self._feed.topic, self._id, ordered, endings or {}))

    def _unpack(self, data: bytes, kind: type[Any]) -> Any:
        try:
            found = msgspec.msgpack.decode(data, type=kind)
            is_same = found.kind == "kafka" and found.topic == self._feed.topic
        except UNREADABLE:
            is_same = False
        if not is_same:
            raise InvalidOption(
                f"{self._what}: the application has read from another source than {self._named} under this name; give "
                "the feed another name="
            )
        return found


def _message(found: Any) -> KafkaMessage:
    return KafkaMessage(
        found.value(),
        found.key(),
        found.partition(),
        found.offset(),
        found.timestamp()[1],
        found.headers() or (),
        found.topic(),
    )
