"""An `App` as the node of `tussock serve` sees it."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

from tussock.compute.applications.ipc_streams import ipc_bytes
from tussock.compute.service.rpc import application_pb2 as pb
from tussock.compute.service.rpc.values import get_rows, plain_arguments
from tussock.statestore.errors import InvalidOption

if TYPE_CHECKING:
    from tussock.compute.procedures.app import App

__all__ = ["ServedApp"]

LOOKS_MAX = 4
"""At once: each waits until the procedure that runs is done."""


class ServedApp:
    """A `ServedLayer`."""

    layer = "procedures"
    kinds = frozenset({"submit", "call", "trace", "window_rows", "stats"})

    def __init__(self, app: "App", store_url: str) -> None:
        """Not started yet."""
        self.name = app.name
        self.store_url = store_url
        self._app = app
        self._looks = ThreadPoolExecutor(LOOKS_MAX, thread_name_prefix="tussock-look")

    def begin_with(self, workers: int) -> None:
        """Procedures run one after the other, in one process: `InvalidOption`, except for 0."""
        if workers:
            raise self._no_workers("leave `workers` out")

    def scale(self, workers: int) -> NoReturn:  # noqa: ARG002 - it has none
        """`InvalidOption`, for the same reason."""
        raise self._no_workers("leave `workers_file` out")

    def take_workers(self) -> NoReturn:
        """`InvalidOption`, for the same reason."""
        raise self._no_workers("leave `workers_listen` out")

    def workers(self) -> dict[str, int]:
        """None."""
        return {}

    def _no_workers(self, way_out: str) -> InvalidOption:
        return InvalidOption(
            f"application {self.name!r} has procedures, which run one after the other in one process; workers are for "
            f"functions: {way_out}"
        )

    def start(self) -> None:
        """Recover, and begin to take requests."""
        self._app.start()

    def stop(self) -> None:
        """Run what was taken, commit, end."""
        self._looks.shutdown(wait=False, cancel_futures=True)
        self._app.stop()

    def begin(self, kind: str, request: pb.Request) -> "Future[Any]":
        """Ask the application."""
        if kind == "submit":
            submit = request.submit
            return self._app.submit(submit.procedure, get_rows(submit), submit.batch_id or None)
        if kind == "call":
            return self._app.call_async(request.call.name, *plain_arguments(request.call))
        if kind == "trace":
            return self._looks.submit(self._app.trace, request.trace.last)
        if kind == "window_rows":
            window = request.window_rows
            return self._looks.submit(self._app.window_rows, window.window, staged=window.staged)
        if kind == "stats":
            return self._looks.submit(self._app.stats)
        raise InvalidOption(f"an application of procedures has no request {kind!r}")

    def schemas(self) -> dict[str, bytes]:
        """By border procedure, what its batches look like."""
        found = self._app.border_schemas()
        return {name: b"" if schema is None else ipc_bytes(schema.empty_table()) for name, schema in found.items()}

    def pause(self) -> None:
        """Take requests, and run none."""
        self._app.pause()

    def resume(self) -> None:
        """Run requests again."""
        self._app.resume()

    def status(self) -> dict[str, Any]:
        """How the application is."""
        return self._app.status()

    @property
    def failure(self) -> Exception | None:
        """What has ended the application."""
        return self._app.failure
