"""Transfers between accounts in workers: a bank, its requests, and the ledger that it has to end with."""

import random
import time
from concurrent.futures import Future
from typing import Any

from support.functions.accounts import accounts
from tussock.compute import functions as fn
from tussock.statestore import StateStore

__all__ = ["BankOfWorkers"]

SECONDS = 60


class BankOfWorkers:
    """Accounts with a balance each, and requests that may find too little there."""

    def __init__(self, store: StateStore, count: int, balance: int, **options: Any) -> None:
        self.keys = [f"a{at}" for at in range(count)]
        self.ledger = dict.fromkeys(self.keys, balance)
        self.runtime = fn.Runtime(store, "bank", [accounts()], **{"workers": 2, **options})
        self.runtime.load("account", [{"key": key, "balance": balance} for key in self.keys])
        self.waits: list[float] = []
        """Seconds that replies took."""
        self._sent: list[tuple[str, str, int, Future[Any]]] = []

    def send(self, chance: random.Random, count: int) -> None:
        """Ask for that many, and do not wait."""
        for _ in range(count):
            debtor, creditor = chance.sample(self.keys, 2)
            amount = chance.randint(1, 15)
            future = self.runtime.send("account", debtor, "transfer", creditor, amount)
            began = time.monotonic()
            future.add_done_callback(lambda _, began=began: self.waits.append(time.monotonic() - began))
            self._sent.append((debtor, creditor, amount, future))

    def settle(self) -> int:
        """Wait for all replies, and book what was done; returns how many were refused for lack of credit."""
        refused = 0
        for debtor, creditor, amount, future in self._sent:
            error = future.exception(SECONDS)
            if error is None:
                self.ledger[debtor] -= amount
                self.ledger[creditor] += amount
                assert future.result() >= 0
            else:
                assert str(error) == f"not enough credit: {debtor}", error
                refused += 1
        self._sent = []
        return refused

    def balances(self) -> dict[str, int]:
        """What the program says."""
        return {key: (self.runtime.query("account", key) or {})["balance"] for key in self.keys}

    @staticmethod
    def stored(store: StateStore) -> dict[str, Any]:
        """What the store has, as text."""
        return {row["key"]: row["state"] for batch in store.table("account").read() for row in batch.to_pylist()}
