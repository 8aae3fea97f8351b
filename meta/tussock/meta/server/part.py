"""What a leadership is made of: parts that answer RPCs, each told of sessions, of time and of the end of the term."""

from abc import abstractmethod
from typing import Protocol

from tussock.meta.node.auth.caller import Handlers
from tussock.meta.server.sessions import Session

__all__ = ["Part"]


class Part(Protocol):
    """One part; what it need not hear of does nothing by default."""

    @abstractmethod
    def handlers(self) -> Handlers:
        """The RPCs answered here."""

    def greet_session(self, session: Session) -> None:  # noqa: ARG002 -- for parts that send events
        """Serve a session that has subscribed, perhaps once more: events may have been lost."""
        return

    def end_session(self, session: Session) -> None:  # noqa: ARG002 -- for parts that hold things for it
        """Release what belongs to a session that is over."""
        return

    def tick(self) -> None:
        """Do what is due."""
        return

    def close(self) -> None:
        """The term is over: nothing may act any more."""
        return
