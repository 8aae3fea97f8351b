"""NewOrder and Payment of TPC-C: what the functions do; `tpcc_checker.py` has the requests' generator and the checker.

Money is in cents, rates in hundredths of a percent, so that everything is exact. Keys are text: `1:3` is district 3 of
warehouse 1, `1:3:77` its customer 77. The caller names an order, and its number, which the district gives, is a column.
Were the number a part of its key, an order that runs again would be another entity: it could not commit in its epoch,
as docs/functions.md says of the lock phase, and one epoch would take one order of each district.

    order           new_order   the order itself, a row each in `new_orders` and for each line in `order_line`
    history         payment     a row; warehouse, district and customer count it
"""

from typing import Any

import pyarrow as pa

from tussock.compute import functions as fn

__all__ = ["NO_ITEM", "RATE", "make_operators"]

NO_ITEM = "Item number is not valid"
RATE = 10_000
"""What a rate of 100 % is."""
LOW, MORE = 10, 91
"""A stock that an order would leave below the first gets the second."""

I64, TEXT = pa.int64(), pa.string()
COLUMNS: dict[str, dict[str, pa.DataType]] = {
    "warehouse": {"tax": I64, "ytd": I64},
    "district": {"tax": I64, "ytd": I64, "next_o_id": I64},
    "customer": {
        "first": TEXT,
        "last": TEXT,
        "credit": TEXT,
        "discount": I64,
        "balance": I64,
        "ytd_payment": I64,
        "payment_cnt": I64,
        "data": TEXT,
    },
    "last_name": {"customers": pa.list_(I64)},
    "item": {"name": TEXT, "price": I64},
    "stock": {"quantity": I64, "ytd": I64, "order_cnt": I64, "remote_cnt": I64},
    "order": {"district": TEXT, "o_id": I64, "c_id": I64, "ol_cnt": I64, "all_local": I64, "total": I64},
    "new_orders": {"district": TEXT, "o_id": I64},
    "order_line": {"order": TEXT, "i_id": I64, "supply_w_id": I64, "quantity": I64, "amount": I64},
    "history": {"district": TEXT, "customer": TEXT, "amount": I64},
}
DATA_MAX = 500


def make_operators() -> list[fn.Operator]:
    """All of the program's."""
    operators = {
        name: fn.Operator(
            name,
            4,
            schema=pa.schema([pa.field(column, kind, nullable=False) for column, kind in columns.items()]),
            key=I64 if name == "item" else TEXT,
        )
        for name, columns in COLUMNS.items()
    }
    _register_new_order(operators)
    _register_order_parts(operators)
    _register_payment(operators)
    return list(operators.values())


def _state(ctx: fn.FunctionContext) -> dict[str, Any]:
    state = ctx.get()
    if state is None:
        raise LookupError(f"there is no {ctx.key}")
    return state


def _register_new_order(operators: dict[str, fn.Operator]) -> None:
    @operators["order"].register
    async def new_order(
        ctx: fn.FunctionContext, warehouse: int, district: int, customer: int, lines: list[list[int]]
    ) -> list[int]:
        """`lines`: item, warehouse that supplies it, quantity. Replies the order's number and what it costs."""
        home = f"{warehouse}:{district}"
        tax = await ctx.call("warehouse", str(warehouse), "tax")
        number, local_tax = await ctx.call("district", home, "next_order")
        discount = await ctx.call("customer", f"{home}:{customer}", "discount")
        total = 0
        for at, (item, supplier, quantity) in enumerate(lines):
            amount = quantity * await ctx.call("item", item, "price")
            await ctx.call("stock", f"{supplier}:{item}", "take", quantity, supplier != warehouse)
            ctx.call_async("order_line", f"{ctx.key}:{at + 1}", "insert", ctx.key, item, supplier, quantity, amount)
            total += amount
        total = total * (RATE - discount) * (RATE + tax + local_tax) // RATE**2
        ctx.call_async("new_orders", ctx.key, "insert", home, number)
        is_local = all(supplier == warehouse for _, supplier, _ in lines)
        ctx.put(
            {
                "district": home,
                "o_id": number,
                "c_id": customer,
                "ol_cnt": len(lines),
                "all_local": int(is_local),
                "total": total,
            }
        )
        return [number, total]

    @operators["new_orders"].register
    async def insert(ctx: fn.FunctionContext, district: str, number: int) -> None:
        ctx.put({"district": district, "o_id": number})


def _register_order_parts(operators: dict[str, fn.Operator]) -> None:
    @operators["warehouse"].register
    async def tax(ctx: fn.FunctionContext) -> int:
        return int(_state(ctx)["tax"])

    @operators["district"].register
    async def next_order(ctx: fn.FunctionContext) -> list[int]:
        state = _state(ctx)
        ctx.put({**state, "next_o_id": state["next_o_id"] + 1})
        return [state["next_o_id"], state["tax"]]

    @operators["customer"].register
    async def discount(ctx: fn.FunctionContext) -> int:
        return int(_state(ctx)["discount"])

    @operators["item"].register
    async def price(ctx: fn.FunctionContext) -> int:
        state = ctx.get()
        if state is None:
            raise ValueError(NO_ITEM)
        return int(state["price"])

    @operators["stock"].register
    async def take(ctx: fn.FunctionContext, quantity: int, is_remote: bool) -> None:
        state = _state(ctx)
        left = state["quantity"] - quantity
        ctx.put(
            {
                "quantity": left if left >= LOW else left + MORE,
                "ytd": state["ytd"] + quantity,
                "order_cnt": state["order_cnt"] + 1,
                "remote_cnt": state["remote_cnt"] + is_remote,
            }
        )

    @operators["order_line"].register
    async def insert(ctx: fn.FunctionContext, order: str, item: int, supplier: int, quantity: int, amount: int) -> None:
        ctx.put({"order": order, "i_id": item, "supply_w_id": supplier, "quantity": quantity, "amount": amount})


def _register_payment(operators: dict[str, fn.Operator]) -> None:
    @operators["history"].register
    async def payment(
        ctx: fn.FunctionContext, warehouse: int, district: int, home: str, customer: Any, amount: int
    ) -> list[Any]:
        """By a customer of district `home`, given by number or by last name. Replies the customer and the balance."""
        if isinstance(customer, str):
            customer = await ctx.call("last_name", f"{home}:{customer}", "middle")
        ctx.call_async("warehouse", str(warehouse), "receive", amount)
        ctx.call_async("district", f"{warehouse}:{district}", "receive", amount)
        key = f"{home}:{customer}"
        balance = await ctx.call("customer", key, "pay", f"{warehouse}:{district}", amount)
        ctx.put({"district": f"{warehouse}:{district}", "customer": key, "amount": amount})
        return [key, balance]

    @operators["last_name"].register
    async def middle(ctx: fn.FunctionContext) -> int:
        """Of all with this name, by their first names, the one in the middle."""
        customers = _state(ctx)["customers"]
        return int(customers[(len(customers) - 1) // 2])

    async def receive(ctx: fn.FunctionContext, amount: int) -> None:
        state = _state(ctx)
        ctx.put({**state, "ytd": state["ytd"] + amount})

    operators["warehouse"].register(receive)
    operators["district"].register(receive)

    @operators["customer"].register
    async def pay(ctx: fn.FunctionContext, district: str, amount: int) -> int:
        state = _state(ctx)
        state["balance"] -= amount
        state["ytd_payment"] += amount
        state["payment_cnt"] += 1
        if state["credit"] == "BC":
            state["data"] = f"{ctx.key} {district} {amount}|{state['data']}"[:DATA_MAX]
        ctx.put(state)
        return int(state["balance"])
