"""YCSB-T as Styx measures it: accounts, and transfers of 1 between two of them, which are two reads and two writes.

The debtor is drawn evenly, the creditor by Zipf. `transfers` does the same on columns, for many requests at a time.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from functions.workload import Reply, Request, Tables
from functions.zipf import Numbers, zipf

from tussock.compute import functions as fn

__all__ = ["YcsbT", "make_accounts"]

NO_CREDIT, NOBODY = "not enough credit", "no such account"
BALANCE = pa.schema([pa.field("balance", pa.int64(), nullable=False)])
AMOUNT = 1


def make_accounts(partitions: int = 4) -> fn.Operator:
    """`transfer(to, amount)` from an account, which replies what is left; `transfers`, the same for batches."""
    account = fn.Operator("account", partitions, schema=BALANCE, key=pa.int64())

    @account.register
    async def transfer(ctx: fn.FunctionContext, to: int, amount: int) -> int:
        state = ctx.get()
        if state is None:
            raise LookupError(NOBODY)
        left = int(state["balance"]) - amount
        if left < 0:
            raise ValueError(NO_CREDIT)
        ctx.put({"balance": left})
        ctx.call_async("account", to, "credit", amount)
        return left

    @account.register
    async def credit(ctx: fn.FunctionContext, amount: int) -> None:
        state = ctx.get()
        if state is None:
            raise LookupError(NOBODY)
        ctx.put({"balance": state["balance"] + amount})

    @account.register_batch(touches={"to": "account"})
    def transfers(batch: fn.FunctionBatch) -> Any:
        amount, mine, theirs = batch["amount"], batch.state("balance"), batch.state("balance", of="to")
        batch.abort(pc.or_(pc.is_null(mine), pc.is_null(theirs)), NOBODY)
        left = pc.subtract(mine, amount)
        batch.abort(pc.less(left, 0), NO_CREDIT)
        batch.put({"balance": left})
        batch.put({"balance": pc.add(theirs, amount)}, of="to")
        return left

    return account


class YcsbT:
    """Accounts 0, 1, 2 ... with the same balance each.

    `skew`: of the creditors, from 0 to below 1. `across`: the share of transfers between two of `partitions`, which an
    account has by the rest of its number; `None` leaves it to chance.
    """

    def __init__(
        self,
        accounts: int = 10_000,
        balance: int = 1_000_000,
        *,
        skew: float = 0.0,
        across: float | None = None,
        partitions: int = 4,
    ) -> None:
        self.accounts = accounts - accounts % partitions
        self.balance = balance
        self._skew = skew
        self._across = across
        self._partitions = partitions
        self.operators = [make_accounts(partitions)]

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """All accounts."""
        return {"account": [{"key": key, "balance": self.balance} for key in range(self.accounts)]}

    def table(self) -> pa.Table:
        """The same as a table, for many of them."""
        return pa.table({"key": np.arange(self.accounts), "balance": np.full(self.accounts, self.balance)})

    def pairs(self, count: int, seed: int) -> tuple[Numbers, Numbers]:
        """Debtors and creditors, who differ."""
        random = np.random.default_rng(seed)
        debtors = random.integers(0, self.accounts, count)
        shift = np.zeros(count, np.int64)
        if self._across is not None:
            is_across = random.random(count) < self._across
            shift = np.where(is_across, random.integers(1, max(self._partitions, 2), count), 0)
        creditors = debtors.copy()
        while (same := np.flatnonzero(creditors == debtors)).size:
            drawn = zipf(random, self.accounts, self._skew, len(same))
            if self._across is not None:
                # The account next to the one drawn whose partition is the wanted one.
                wanted = (debtors[same] + shift[same]) % self._partitions
                drawn = drawn - drawn % self._partitions + wanted
            creditors[same] = drawn
        return debtors, creditors

    def requests(self, count: int, seed: int) -> list[Request]:
        """A transfer each."""
        debtors, creditors = self.pairs(count, seed)
        return [
            Request("account", debtor, "transfer", (creditor, AMOUNT))
            for debtor, creditor in zip(debtors.tolist(), creditors.tolist(), strict=True)
        ]

    def columns(self, count: int, seed: int) -> tuple[pa.Array, pa.Table]:
        """Keys and columns of the same transfers for `transfers`."""
        debtors, creditors = self.pairs(count, seed)
        return pa.array(debtors), pa.table({"to": creditors, "amount": np.full(count, AMOUNT)})

    def check(self, requests: Sequence[Request], replies: Sequence[Reply], tables: Tables) -> list[str]:
        """The ledger: what each account has is what its transfers leave, and the sum is as it was."""
        expected = dict.fromkeys(range(self.accounts), self.balance)
        wrong = []
        for request, reply in zip(requests, replies, strict=True):
            if reply.error is None:
                to, amount = request.arguments
                expected[int(request.key)] -= amount
                expected[to] += amount
                if reply.value < 0:
                    wrong.append(f"{request} left {reply.value}")
            elif reply.error != NO_CREDIT:
                wrong.append(f"{request} was aborted: {reply.error}")
        found = {key: state["balance"] for key, state in tables["account"].items()}
        if sum(found.values()) != self.accounts * self.balance:
            wrong.append(f"all accounts have {sum(found.values())}, expected {self.accounts * self.balance}")
        if min(found.values()) < 0:
            wrong.append(f"an account has {min(found.values())}")
        differing = [key for key in expected | found if expected.get(key) != found.get(key)]
        wrong += [f"account {key} has {found.get(key)}, expected {expected.get(key)}" for key in differing[:5]]
        return wrong
