"""Questions about a topic: which one it is, how many partitions it has, and where they begin and end."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tussock.compute.applications.kafka.library import kafka_library
from tussock.statestore.base.system import System

__all__ = ["TopicClient"]

T = TypeVar("T")

TRY_SECONDS = 10.0
"""Of one client: some wait for a controller that a new one finds at once."""
PAUSE_SECONDS = 0.2
_PASSING = (
    *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION"),
    *("NOT_CONTROLLER", "OFFSET_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "_TIMED_OUT"),
)
"""Codes of errors that go by themselves, such as while a topic is new or its leader changes."""


class TopicClient:
    """Of one topic, for one thread; each question raises `KafkaException`."""

    def __init__(self, system: System, servers: str, topic: str, config: Mapping[str, Any]) -> None:
        """`config`: options of the library, of which those are taken that say how to reach the brokers."""
        self._kafka = kafka_library()
        self._system = system
        self._passing = {getattr(self._kafka.KafkaError, name) for name in _PASSING}
        self._topic = topic
        # Without its own lines; what concerns users is in its answers.
        self._options = {"log_level": 0} | {
            name: value for name, value in config.items() if name.startswith(("sasl.", "ssl.", "secur"))
        }
        self._options["bootstrap.servers"] = servers
        self._admin: Any = None

    def describe(self, seconds: float) -> tuple[str, list[int]]:
        """The topic's id, which another topic of its name does not have, and its partitions."""
        asked = self._kafka.TopicCollection([self._topic])
        found = self._ask(
            lambda left: self._asked().describe_topics(asked, request_timeout=left)[self._topic].result(), seconds
        )
        return str(found.topic_id), sorted(one.id for one in found.partitions)

    def offsets(self, spec: Any, partitions: Iterable[int], seconds: float) -> dict[int, int]:
        """Of each partition the offset that an `OffsetSpec` asks for, for readers with `read_committed`."""
        asked = {self._kafka.TopicPartition(self._topic, partition): spec for partition in partitions}
        isolation = self._kafka.IsolationLevel.READ_COMMITTED

        def ask(left: float) -> dict[int, int]:
            answers = self._asked().list_offsets(asked, isolation_level=isolation, request_timeout=left)
            return {place.partition: int(answer.result().offset) for place, answer in answers.items()}

        return self._ask(ask, seconds)

    def _ask(self, question: Callable[[float], T], seconds: float) -> T:
        until = self._system.monotonic() + seconds
        while True:
            left = until - self._system.monotonic()
            try:
                return question(min(max(left, PAUSE_SECONDS), TRY_SECONDS))
            except self._kafka.KafkaException as error:
                self._admin = None
                if error.args[0].code() not in self._passing or self._system.monotonic() + PAUSE_SECONDS > until:
                    raise
            self._system.sleep(PAUSE_SECONDS)

    def _asked(self) -> Any:
        """A client for questions; a new one after an error, since what one knows of leaders may stay outdated."""
        if self._admin is None:
            self._admin = self._kafka.admin.AdminClient(self._options)
        return self._admin
