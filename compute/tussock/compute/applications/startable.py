"""`Startable`: what runs from its start to its stop, and in a `with` block as long as the block."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Startable"]


class Startable(ABC):
    """An application of any layer."""

    @abstractmethod
    def start(self) -> None:
        """Recover, and begin to take requests; raises what hinders it."""

    @abstractmethod
    def stop(self) -> None:
        """Run what was asked for, commit, and end; raises what the application has failed with."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
