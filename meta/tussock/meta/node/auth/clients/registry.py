"""The clients file as it is now: read again while the service runs, so that a client is let in or shut out at once."""

import asyncio

from tussock.meta.node.auth.clients.declarations import IDENTITY_PREFIX, DeclaredClients
from tussock.meta.node.auth.clients.file import read_clients
from tussock.statestore.base.system import System
from tussock.statestore.base.watched_files import LOOK_EVERY_SECONDS, WatchedFiles

__all__ = ["ClientRegistry"]


class ClientRegistry:
    """The declared clients. Safe to share between threads."""

    def __init__(self, path: str, system: System) -> None:
        """Reads the file; `InvalidOption` if it cannot be used."""
        self._system = system
        self._path = path
        self._files = WatchedFiles([path], read_clients, system)

    def current(self) -> DeclaredClients:
        """Those of the file, as it was a second ago at most; of a damaged one those that it had before."""
        return self._files.current()

    async def watch(self) -> None:
        """Look at the file for ever, also while nobody calls: a damaged one is to be told before somebody needs it."""
        while True:
            # Reading a large file takes a moment, for which calls should not wait.
            await asyncio.to_thread(self._files.current)
            await asyncio.sleep(LOOK_EVERY_SECONDS)

    @property
    def problem(self) -> str:
        """Why the file is not in force as it is now; empty while it is."""
        self._files.current()
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
