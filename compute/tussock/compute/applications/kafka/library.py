"""The client library of Kafka, where it is installed."""

from typing import Any

from tussock.statestore.base.logs import get_logger
from tussock.statestore.errors import InvalidOption

__all__ = ["QuietLog", "client_options", "kafka_library"]

log = get_logger("tussock.compute.applications.kafka")


def kafka_library() -> Any:
    """The module `confluent_kafka`; `InvalidOption` that says what to install where it is missing."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise InvalidOption(
            f"Kafka needs the package confluent-kafka, which cannot be imported here ({error}): "
            "pip install 'tussock[kafka]'"
        ) from error
    return confluent_kafka


def client_options(servers: object, topic: object, config: object, reserved: tuple[str, ...]) -> None:
    """`InvalidOption` unless these are addresses, a topic, and options of the library that are not set here."""
    if not isinstance(servers, str) or not servers:
        raise InvalidOption(f"servers={servers!r:.100}; expected 'host:port', or several with commas between them")
    if not isinstance(topic, str) or not topic or len(topic) > 249:
        raise InvalidOption(f"topic={topic!r:.300}; expected the name of a topic")
    if not isinstance(config, dict) or not all(isinstance(name, str) for name in config):
        raise InvalidOption(
            f"topic {topic!r}: config is a {type(config).__name__}; expected a dict of librdkafka's options"
        )
    taken = sorted(name for name in config if name in reserved)
    if taken:
        raise InvalidOption(f"topic {topic!r}: config has {taken}, on which exactly-once depends; leave them out")


class QuietLog:
    """Takes the library's lines, which would go to the standard error."""

    def log(self, level: int, message: str, *arguments: object) -> None:
        """As `logging.Logger.log`."""
        log.debug("kafka", level=level, message=message % arguments if arguments else message)
