"""What a run of the lock phase may read: what the first run of its transaction touched, on which it has locks."""

from collections.abc import Collection, Mapping
from typing import Any

from tussock.compute.functions.errors import Diverged
from tussock.compute.functions.program.context import Entity, EntityAccess

__all__ = ["LockedAccess"]


class LockedAccess:
    """An `EntityAccess` that ends a run at the first entity without a lock.

    What such a run would read there depends on who else runs, and it is repeated in the next epoch in any case.
    """

    def __init__(
        self,
        access: EntityAccess,
        reads: Collection[Entity],
        writes: Collection[Entity],
        believed: Mapping[Entity, Any] | None = None,
    ) -> None:
        """`believed`: what lower transactions wrote which may commit."""
        self._believed = believed
        self._read = access.read
        self._reads = reads
        self._writes = writes
        self.encode = access.encode
        self.decode = access.decode
        self.target = access.target

    def read(self, entity: Entity) -> Any:
        """The stored form of an entity's state, or `None`; `Diverged` without a lock."""
        if entity not in self._reads and entity not in self._writes:
            raise Diverged
        if self._believed is not None and entity in self._believed:
            return self._believed[entity]
        return self._read(entity)
