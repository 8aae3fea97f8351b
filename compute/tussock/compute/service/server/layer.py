"""What the node needs of a layer: the calls that its applications have, and how they are."""

from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from tussock.compute.service.rpc import application_pb2 as pb

__all__ = ["Servable", "ServedLayer"]


class ServedLayer(Protocol):
    """An application of a layer, as the node sees it. Calls may come from any thread."""

    name: str
    layer: str
    """`procedures` or `functions`."""
    store_url: str

    def begin_with(self, workers: int) -> None:
        """Have that many processes run it, before the start; `InvalidOption` where a layer cannot."""

    def start(self) -> None:
        """Recover, and begin to take requests; raises what hinders it."""

    def stop(self) -> None:
        """Run what was taken, commit, end; raises what the application has failed with."""

    def begin(self, kind: str, request: pb.Request) -> "Future[Any]":
        """Ask for something; the future gets plain values or an Arrow table, and `cancel` withdraws what waits.

        Does not wait for the application. Raises a `TussockError` for a request that cannot work.
        """

    def schemas(self) -> dict[str, bytes]:
        """For `Hello.schemas`."""

    def pause(self) -> None:
        """Take requests, and run none."""

    def resume(self) -> None:
        """Run requests again."""

    def status(self) -> dict[str, Any]:
        """How the application is, as JSON can say it; without waiting for what runs."""

    @property
    def failure(self) -> Exception | None:
        """What has ended the application."""


@runtime_checkable
class Servable(Protocol):
    """An object that `tussock serve` takes."""

    def served(self) -> ServedLayer:
        """It as a node sees it."""
