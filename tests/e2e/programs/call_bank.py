"""Deposits at the bank, one coin a call, until the file `stop` is there; each reply must be the number of coins so far.

So a call that failed, was lost or ran twice shows at once. Half of the callers give their calls ids, and the others
end when the file `ids-only` is there. Prints how far it is, a line a second, and at last what it has found.
"""

import json
import os
import threading
import time
from pathlib import Path

from tussock.compute import functions as fn

STOP, IDS_ONLY = Path("/tmp/stop"), Path("/tmp/ids-only")
CALLERS = 6
SECONDS = 120


class Caller(threading.Thread):
    """One account, and who gives to it."""

    def __init__(self, client: fn.Client, account: str, *, has_ids: bool) -> None:
        super().__init__(daemon=True)
        self._client = client
        self._has_ids = has_ids
        self.account = account
        self.calls = 0
        self.longest = 0.0
        self.failure = ""

    def run(self) -> None:
        while not (self.failure or STOP.exists() or (IDS_ONLY.exists() and not self._has_ids)):
            began = time.monotonic()
            try:
                self._call()
            except Exception as error:
                self.failure = f"{self.account}: call {self.calls + 1}: {type(error).__name__}: {error}"
            self.longest = max(self.longest, time.monotonic() - began)

    def _call(self) -> None:
        request_id = f"{self.account}-{self.calls}" if self._has_ids else None
        coins = self._client.send("account", self.account, "deposit", 1, request_id=request_id).result(SECONDS)
        self.calls += 1
        if coins != self.calls:
            raise AssertionError(f"{coins} coins")


def told(callers: list[Caller]) -> dict[str, object]:
    return {
        "calls": sum(one.calls for one in callers),
        "longest": max(one.longest for one in callers),
        "failures": [one.failure for one in callers if one.failure],
    }


with fn.Client(os.environ["BANK"], deadline=SECONDS) as client:
    callers = [Caller(client, f"a{number}", has_ids=number % 2 == 0) for number in range(CALLERS)]
    for one in callers:
        one.start()
    while any(one.is_alive() for one in callers):
        print(json.dumps(told(callers)), flush=True)
        # So that a test finds how long the calls of its step took.
        for one in callers:
            one.longest = 0.0
        time.sleep(1)
    held = {one.account: (client.query("account", one.account) or {}).get("balance") for one in callers}
    wrong = [one for one in callers if held[one.account] != one.calls]
    differing = [f"{one.account}: {held[one.account]} for {one.calls}" for one in wrong]
    print(json.dumps({**told(callers), "differing": differing, "state": client.status()["state"]}), flush=True)
