"""Places in a topic, as the state of an application and the log have them."""

import msgspec

__all__ = ["TopicPosition", "TopicSpan"]


class TopicPosition(msgspec.Struct, array_like=True, frozen=True):
    """How far a topic was read."""

    kind: str
    topic: str
    id: str
    """A topic of the same name that was made later has another one."""
    offsets: dict[int, int]
    """By partition, the next one to read."""
    endings: dict[int, int] = {}
    """The same of the topic that says where transactions end."""


class TopicSpan(msgspec.Struct, array_like=True, frozen=True):
    """What was read at once."""

    kind: str
    topic: str
    id: str
    parts: dict[int, tuple[int, int, int]]
    """By partition: the first offset, the one behind the last, and how many messages there are between them."""
    endings: dict[int, int] = {}
    """As in the position behind it."""
