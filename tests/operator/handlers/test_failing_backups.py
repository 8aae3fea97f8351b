"""A backup that keeps failing is tried by ever longer pauses, which a list of the backups in between does not end."""

import asyncio
from typing import Any

from tussock.operator.cluster.seen import Seen, key_of
from tussock.operator.handlers.backup import STATE_STORE_BACKUP
from tussock.operator.handlers.world import World
from tussock.operator.planning.backup import TEND_BACKUPS
from tussock.operator.planning.words.facts import BackupsFact
from tussock.operator.resources.backup import parse_backup

PLACE = {"namespace": "n", "generation": 1}
STORE = {
    "kind": "StateStore",
    "metadata": {**PLACE, "name": "s", "uid": "1"},
    "spec": {"objectStore": {"managed": {}}, "tls": {"mode": "none"}},
}
META = {
    "kind": "Meta",
    "metadata": {**PLACE, "name": "s", "uid": "2"},
    "spec": {"storeRef": {"name": "s"}},
    "status": {"readyReplicas": 1},
}
BACKUP = {
    "kind": "StateStoreBackup",
    "metadata": {**PLACE, "name": "b", "uid": "3"},
    "spec": {"storeRef": {"name": "s"}},
}


class Probes:
    """Asks at once, whatever the age of the last answer, and notes how old that might have been."""

    def __init__(self) -> None:
        self.latest: BackupsFact | None = None
        self.pauses: list[float] = []
        self.fails = True

    def latest_fact(self, *_: object) -> BackupsFact | None:
        return self.latest

    def fact(self, _key: object, _about: object, run: Any, every_seconds: float) -> BackupsFact | None:
        self.pauses.append(every_seconds)
        self.run = run
        return self.latest

    async def call_in_thread(self, *_: object, **__: object) -> BackupsFact:
        return BackupsFact((), "the meta service says no." if self.fails else "")


def test_the_pauses_of_a_failing_backup_double() -> None:
    """They begin anew after a success."""
    seen, probes = Seen(), Probes()
    for body in (STORE, META, BACKUP):
        seen.put(body["kind"], body)
    parts = {"api": None, "wake": None, "system": None, "metrics": None, "identity": "x", "defaults": None}
    world: Any = World(seen=seen, probes=probes, has_cert_manager=False, **parts)  # type: ignore[arg-type]
    backup, key = parse_backup(BACKUP), key_of(BACKUP)
    assert key.name == "b"
    arguments = {"make": [("name", "0" * 32, "")], "drop": [], "leaving": False}

    async def attempt() -> None:
        await STATE_STORE_BACKUP.works[TEND_BACKUPS](world, backup, arguments)
        probes.latest = await probes.run()

    async def body() -> None:
        for _ in range(7):
            await attempt()
        assert probes.pauses == [0, 10, 20, 40, 80, 160, 300]
        STATE_STORE_BACKUP.observe(world, backup, BACKUP)
        assert probes.pauses.pop() > 300
        probes.fails = False
        await attempt()
        probes.pauses.clear()
        STATE_STORE_BACKUP.observe(world, backup, BACKUP)
        await attempt()
        assert probes.pauses == [60, 0]

    asyncio.run(body())
