"""The clients file as it is now: read again while the service runs, so that a client is let in or shut out at once."""

import asyncio

from tussock.meta.node.auth.clients.declarations import IDENTITY_PREFIX, DeclaredClients
from tussock.meta.node.auth.clients.file import read_clients
from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import WatchedFiles

__all__ = ["ClientRegistry"]

WATCH_SECONDS = 0.25
"""Between two questions whether the file has changed, of which `WatchedFiles` looks at it for one a second."""


class ClientRegistry:
    """The declared clients. Safe to share between threads."""

    def __init__(self, path: str, system: System) -> None:
        """Reads the file; `InvalidOption` if it cannot be used."""
        self._system = system
        self._path = path
        self._files = WatchedFiles([path], read_clients, system)
        self._last = self._files.current()
        self._is_watched = False

    def current(self) -> DeclaredClients:
        """Those of the file, as it was a second ago at most; of a damaged one those that it had before."""
        return self._last if self._is_watched else self._files.current()

    async def watch(self) -> None:
        """Look at the file for ever, also while nobody calls: a damaged one is to be told before somebody needs it.

        From then on nobody else does: to read two thousand clients takes tenths of a second, for which no call should
        wait.
        """
        self._is_watched = True
        try:
            while True:
                self._last = await asyncio.to_thread(self._files.current)
                await asyncio.sleep(WATCH_SECONDS)
        finally:
            self._is_watched = False

    @property
    def problem(self) -> str:
        """Why the file is not in force as it is now; empty while it is."""
        self.current()
        return self._files.problem

    def dismissal(self, identity: str) -> str:
        """Why a session of this identity is to end; empty if it may go on.

        Those of certificates go by their URI if it gives them a role; others are found out with their next call.
        """
        clients = self.current()
        if not identity.startswith(IDENTITY_PREFIX):
            is_revoked = clients.is_revoked([f"URI:{identity}"])
            return f"the certificate of {identity!r} is revoked in the service's clients file" if is_revoked else ""
        client = clients.get(identity)
        if client is None:
            return f"the client {identity.removeprefix(IDENTITY_PREFIX)!r} was taken out of the service's clients file"
        return client.refusal(self._system.now_ms())
