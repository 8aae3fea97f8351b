"""A breakpoint of a flow that another process serves."""

from collections.abc import Mapping
from typing import Any

from tussock.compute.service.client.service_client import ServiceClient
from tussock.compute.service.rpc import application_pb2 as pb

__all__ = ["RemoteBreakpoint"]


class RemoteBreakpoint:
    """What a `Breakpoint` shows, as it was when it was asked for; changes need the role admin."""

    def __init__(self, client: ServiceClient, found: Mapping[str, Any]) -> None:
        self._client = client
        self.number: int = found["number"]
        self.stream: str = found["stream"]
        self.side: str = found["side"]
        self.condition: str = found["condition"]
        self.every: int = found["every"]
        self.is_enabled: bool = found["enabled"]
        self.hits: int = found["hits"]
        self.error: str = found["error"]

    def enable(self) -> None:
        """Pause again. `InvalidOption` if it was removed."""
        self._change(pb.ChangeBreakpoint.ENABLE)
        self.is_enabled = True

    def disable(self) -> None:
        """Do not pause until it is enabled. `InvalidOption` if it was removed."""
        self._change(pb.ChangeBreakpoint.DISABLE)
        self.is_enabled = False

    def remove(self) -> None:
        """Be gone. `InvalidOption` if it was removed before."""
        self._change(pb.ChangeBreakpoint.REMOVE)

    def _change(self, how: Any) -> None:
        change = pb.ChangeBreakpoint(number=self.number, how=how)
        self._client.ask_now(pb.Request(change_breakpoint=change), is_repeatable=True)
