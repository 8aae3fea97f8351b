"""Orders, shipments and payments arrive from Kafka as Debezium's changes; a page shows what is owed, live.

    ORDERS_KAFKA=127.0.0.1:9092 python examples/orders_live/demo.py [--changes 20000] [--seed 1] [--store FOLDER]

The topics `orders`, `shipments` and `payments` have to be there, with one partition each, and empty. Changes are sent
at some thousand a second while the flow takes them. At the end each epoch that was committed is compared with what
Polars makes of all rows of the sources at that epoch; exit code 1 says that something differs.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from orders_live.application import SERVERS, make
from orders_live.checker import check_epoch, epochs_of
from orders_live.generator import changes
from orders_live.page import LivePage

from tussock.statestore import connect

PER_SECOND = 4000
"""Changes that are sent, at most."""


def main() -> int:
    """Run, and check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", type=Path, help="a folder; otherwise a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="orders-live-") as scratch:
        folder = options.store or Path(scratch) / "store"
        with connect(folder.resolve().as_uri()) as store, make(store) as flow:
            page = LivePage(flow)
            print(f"The page is at {page.url}", flush=True)
            sender = threading.Thread(target=send, args=(options.seed, options.changes))
            sender.start()
            sender.join()
            flow.drain()
            state = page.state()
            page.close()
            print(f"{state['orders']} orders of {state['customers']} customers, {state['open'] / 100:,.2f} open")
            epochs = epochs_of(store)
            try:
                for epoch in epochs:
                    check_epoch(store, epoch)
            except AssertionError as error:
                print(error)
                return 1
            print(f"{len(epochs)} committed epochs are what Polars makes of the sources")
    return 0


def send(seed: int, count: int) -> None:
    """All changes of a seed, in their order."""
    producer = Producer({"bootstrap.servers": SERVERS, "enable.idempotence": True, "linger.ms": 5})
    began = time.monotonic()
    for at, message in enumerate(changes(seed, count)):
        producer.produce(message.table, message.value, message.key)
        producer.poll(0)
        if at % 100 == 0:
            time.sleep(max(0.0, began + at / PER_SECOND - time.monotonic()))
    producer.flush()


if __name__ == "__main__":
    sys.exit(main())
