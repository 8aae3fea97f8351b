"""Questions about a topic: which one it is, how many partitions it has, and where they begin and end."""

from collections.abc import Iterable, Mapping
from typing import Any

from tussock.compute.applications.kafka.library import kafka_library

__all__ = ["TopicClient"]


class TopicClient:
    """Of one topic, for one thread; each question raises `KafkaException`."""

    def __init__(self, servers: str, topic: str, config: Mapping[str, Any]) -> None:
        """`config`: options of the library, of which those are taken that say how to reach the brokers."""
        self._kafka = kafka_library()
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
        try:
            found = self._asked().describe_topics(asked, request_timeout=seconds)[self._topic].result()
        except self._kafka.KafkaException:
            self._admin = None
            raise
        return str(found.topic_id), sorted(one.id for one in found.partitions)

    def offsets(self, spec: Any, partitions: Iterable[int], seconds: float) -> dict[int, int]:
        """Of each partition the offset that an `OffsetSpec` asks for, for readers with `read_committed`."""
        asked = {self._kafka.TopicPartition(self._topic, partition): spec for partition in partitions}
        isolation = self._kafka.IsolationLevel.READ_COMMITTED
        try:
            answers = self._asked().list_offsets(asked, isolation_level=isolation, request_timeout=seconds)
            return {place.partition: int(answer.result().offset) for place, answer in answers.items()}
        except self._kafka.KafkaException:
            self._admin = None
            raise

    def _asked(self) -> Any:
        """A client for questions; a new one after an error, since what one knows of leaders may stay outdated."""
        if self._admin is None:
            self._admin = self._kafka.admin.AdminClient(self._options)
        return self._admin
