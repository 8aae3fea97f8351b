"""The flow: what is known of each order, of each customer, and the ten who owe most.

    tussock serve orders_live.application:make --store file:///tmp/orders

`ORDERS_KAFKA` names the broker; the topics are `orders`, `shipments` and `payments`.
"""

import os

import pyarrow as pa

from tussock.compute import changelog as cl
from tussock.statestore import StateStore

__all__ = ["SERVERS", "make", "streams"]

SERVERS = os.environ.get("ORDERS_KAFKA", "127.0.0.1:9092")

ORDER = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("cents", pa.int64()), ("at_ms", pa.int64())])
SHIPMENT = pa.schema([("id", pa.int64()), ("order_id", pa.int64()), ("carrier", pa.string()), ("at_ms", pa.int64())])
PAYMENT = pa.schema([("id", pa.int64()), ("order_id", pa.int64()), ("cents", pa.int64()), ("at_ms", pa.int64())])


def streams(store: StateStore) -> list[cl.Stream]:
    """Three that are fed, and what is made of them."""
    orders = cl.Stream(store, "orders", schema=_required(ORDER), key=["id"])
    shipments = cl.Stream(store, "shipments", schema=_required(SHIPMENT), key=["id"])
    payments = cl.Stream(store, "payments", schema=_required(PAYMENT), key=["id"])
    paid = cl.aggregate("paid", payments, ["order_id"], {"paid": ("sum", "cents"), "parts": ("count",)})
    shipped = cl.aggregate("shipped", shipments, ["order_id"], {"boxes": ("count",), "first_ms": ("min", "at_ms")})
    with_paid = cl.join("with_paid", orders, paid, [("id", "order_id")], "left", ["customer", "cents", "paid"])
    known = cl.join("known", with_paid, shipped, [("id", "order_id")], "left", ["customer", "cents", "paid", "boxes"])
    status = cl.project(
        "status",
        known,
        {
            "id": "id",
            "customer": "customer",
            "cents": "cents",
            "open": (lambda row: max(row["cents"] - (row["paid"] or 0), 0), pa.int64()),
            "boxes": (lambda row: row["boxes"] or 0, pa.int64()),
        },
    )
    customers = cl.aggregate(
        "customers", status, ["customer"], {"orders": ("count",), "cents": ("sum", "cents"), "open": ("sum", "open")}
    )
    owing = cl.top("owing", customers, 10, [("open", "desc")])
    return [orders, shipments, payments, paid, shipped, with_paid, known, status, customers, owing]


def make(store: StateStore) -> cl.Flow:
    """The flow, fed by Kafka."""
    flow = cl.Flow(store, streams(store), name="orders_live", checkpoint=0.2)
    for name in ("orders", "shipments", "payments"):
        flow.feed(name, cl.KafkaChanges(SERVERS, name, on_bad="skip"))
    return flow


def _required(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(False) for field in schema])
