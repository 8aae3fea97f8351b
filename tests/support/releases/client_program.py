"""A client of a store as a program that any release can run: a line of JSON asks, a line of JSON answers.

It uses only what all releases have, so it imports nothing of the tests.
"""

import json
import sys
import threading
from typing import Any

import tussock.statestore
from tussock.statestore import connect


class Client:
    """What can be asked; rows are texts."""

    def __init__(self, url: str) -> None:
        self.store = connect(url)
        self.pins: list[Any] = []

    def create(self) -> None:
        self.store.create_table("kv")

    def commit(self, rows: dict[str, str | None], writer: str | None = None, batch_id: int | None = None) -> int:
        """Commit rows as one epoch; `None` deletes."""
        epoch = self.store.new_epoch()
        data = [(key.encode(), None if value is None else value.encode()) for key, value in sorted(rows.items())]
        self.store.table("kv").ingest_batch(data, epoch)
        how = {} if writer is None else {"writer": writer, "batch_id": batch_id}
        return int(self.store.commit_epoch(epoch, **how))

    def commit_in_threads(self, threads: int, commits: int) -> list[int]:
        """Transactions of one row each by several threads at once; returns their epochs."""
        epochs: list[int] = []
        failed: list[BaseException] = []

        def write(key: str) -> None:
            with self.store.transaction() as tx:
                tx.table("kv").ingest_batch([(key.encode(), b"1")])
            epochs.append(int(tx.epoch))

        def work(number: int) -> None:
            try:
                for turn in range(commits):
                    write(f"t{number}-{turn}")
            except BaseException as error:
                failed.append(error)

        running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        if failed:
            raise failed[0]
        return epochs

    def get(self, key: str, epoch: int | None = None) -> str | None:
        found = self.store.table("kv").get(key.encode(), **({} if epoch is None else {"epoch": epoch}))
        return None if found is None else found.decode()

    def wait(self, epoch: int) -> None:
        self.store.wait_epoch(epoch, timeout=60)

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.store.table("kv").scan())

    def pin(self) -> int:
        self.pins.append(self.store.pin_snapshot())
        return len(self.pins) - 1

    def get_pinned(self, pin: int, key: str) -> str | None:
        found = self.pins[pin].table("kv").get(key.encode())
        return None if found is None else found.decode()

    def release(self, pin: int) -> None:
        self.pins[pin].close()

    def compact(self) -> None:
        self.store.compact("kv")


def main() -> None:
    client = Client(sys.argv[1])
    print(json.dumps({"value": tussock.statestore.__file__}), flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"value": getattr(client, name)(*arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    client.store.close()


if __name__ == "__main__":
    main()
