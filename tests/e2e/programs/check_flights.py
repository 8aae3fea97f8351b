"""Runs as a separate job: compares each of the last days in the quickstart's store with the timetable of 2013."""

import os
import sys

sys.path.insert(0, "/opt/tussock/examples")

from flights import reference
from flights.questions import calendar_epochs, table_frame
from flights.timetable import load_timetable

from tussock.statestore import connect

LAST = 5
KEYS = {"flights": reference.KEY, "carrier_totals": ("carrier",)}

timetable = load_timetable(None)
wrong = []
with connect(os.environ["TUSSOCK_STORE"]) as store:
    epochs = calendar_epochs(store)
    days = sorted(epochs)
    # Ten days at the least, and none of them left out.
    if len(days) < 10 or (days[-1] - days[0]).days != len(days) - 1:
        wrong.append(f"days {days}")
    for day in days[-LAST:]:
        moment = reference.end_of_day(day)
        expected = {
            "flights": reference.flights_at(timetable, moment),
            "carrier_totals": reference.carrier_totals(timetable, moment),
        }
        for table, key in KEYS.items():
            found = table_frame(store, table, epochs[day])
            same = expected[table].select(found.columns).cast(dict(found.schema)).sort(key)
            if not found.sort(key).equals(same):
                wrong.append(f"{table} at the end of {day}")
print(f"{len(days)} days, wrong: {wrong}", flush=True)
sys.exit(1 if wrong else 0)
