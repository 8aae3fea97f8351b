"""A process whose main thread is interrupted by a timer that often as it commits, while another one commits, too."""

import signal
import sys
import threading

from tussock.statestore import StateStore, connect

__all__: list[str] = []

SECONDS_MAX = 30


class Interrupt(BaseException):
    """What the timer's handler raises."""


def main(count: int) -> None:
    with connect("memory://") as store:
        store.create_table("kv")
        signal.signal(signal.SIGALRM, interrupt)
        for number in range(count):
            # Again after a while: what is raised within a finalizer Python prints and drops.
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.00001 * (number % 150), 0.3)
            try:
                while True:
                    put(store, b"main")
            except Interrupt:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if number % 10 == 0:
                other = threading.Thread(target=put, args=(store, b"other%d" % number), daemon=True)
                other.start()
                other.join(SECONDS_MAX)
                if store.table("kv").get(b"other%d" % number) is None:
                    sys.exit("another thread waits for ever")
    print(f"{count} interrupts")


def interrupt(*_: object) -> None:
    raise Interrupt


def put(store: StateStore, key: bytes) -> None:
    with store.transaction() as tx:
        tx.table("kv").ingest_batch([(key, key)])


main(int(sys.argv[1]))
