"""Runs in a pod: compare the tables of the board with the truth."""

import json
import os

from board_truth import differences

from tussock.statestore import connect

with connect(os.environ["TUSSOCK_STORE"]) as store:
    events, wrong = differences(store)
print(json.dumps({"events": events, "wrong": wrong}))
