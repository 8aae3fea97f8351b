"""The two transactions of TPC-C as a workload: what there is at first, requests, and the conditions of consistency."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from functions.tpcc import MORE, NO_ITEM, RATE, make_operators
from functions.workload import Reply, Request, Tables

__all__ = ["Tpcc"]

DISTRICTS = 10
NEW_ORDER, BY_NAME, AT_HOME, REMOTE_LINE, ROLLBACK, BAD_CREDIT = 0.51, 0.60, 0.85, 0.01, 0.01, 0.10
LINES_MIN, LINES_MAX, QUANTITY_MAX = 5, 15, 10
AMOUNT_MIN, AMOUNT_MAX = 100, 500_000
W_YTD, D_YTD, BALANCE, PAID = 30_000_000, 3_000_000, -1_000, 1_000
NAMES = 1000
NURAND_ITEM, NURAND_CUSTOMER, NURAND_NAME = 8191, 1023, 255
SYLLABLES = ("BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING")
SEED = 2
"""Of what there is at first."""


class Tpcc:
    """`warehouses`, each with ten districts of `customers`; `items`, of which each warehouse has a stock."""

    def __init__(self, warehouses: int = 1, *, customers: int = 3000, items: int = 100_000) -> None:
        self._warehouses = warehouses
        self._customers = customers
        self._items = items
        self.operators = make_operators()
        self._rows = self._make_rows()

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Everything but orders and payments, of which there are none at first."""
        return self._rows

    def _make_rows(self) -> dict[str, list[dict[str, Any]]]:
        random = np.random.default_rng(SEED)
        rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        prices = random.integers(100, 10_001, self._items).tolist()
        rows["item"] = [{"key": at + 1, "name": f"item {at + 1}", "price": price} for at, price in enumerate(prices)]
        for warehouse in range(1, self._warehouses + 1):
            rows["warehouse"].append({"key": str(warehouse), "tax": int(random.integers(0, 2001)), "ytd": W_YTD})
            stock = {"ytd": 0, "order_cnt": 0, "remote_cnt": 0}
            quantities = random.integers(10, 101, self._items).tolist()
            rows["stock"] += [
                {"key": f"{warehouse}:{at + 1}", "quantity": quantity, **stock}
                for at, quantity in enumerate(quantities)
            ]
            for number in range(1, DISTRICTS + 1):
                key, tax = f"{warehouse}:{number}", int(random.integers(0, 2001))
                rows["district"].append({"key": key, "tax": tax, "ytd": D_YTD, "next_o_id": 1})
                self._add_customers(rows, key, random)
        return rows

    def _add_customers(self, rows: dict[str, list[dict[str, Any]]], home: str, random: np.random.Generator) -> None:
        names = np.arange(self._customers)
        names[NAMES:] = _nurand(random, NURAND_NAME, 0, NAMES - 1, max(self._customers - NAMES, 0))
        discounts = random.integers(0, 5001, self._customers).tolist()
        is_bad = (random.random(self._customers) < BAD_CREDIT).tolist()
        first = random.integers(0, 1 << 40, self._customers).tolist()
        same: dict[str, list[tuple[str, int]]] = defaultdict(list)
        for at, name in enumerate(names.tolist()):
            customer = {
                "key": f"{home}:{at + 1}",
                "first": f"{first[at]:x}",
                "last": _last_name(name),
                "credit": "BC" if is_bad[at] else "GC",
                "discount": discounts[at],
                "balance": BALANCE,
                "ytd_payment": PAID,
                "payment_cnt": 1,
                "data": "",
            }
            rows["customer"].append(customer)
            same[customer["last"]].append((customer["first"], at + 1))
        rows["last_name"] += [
            {"key": f"{home}:{name}", "customers": [number for _, number in sorted(ones)]}
            for name, ones in same.items()
        ]

    def requests(self, count: int, seed: int) -> list[Request]:
        """New orders and payments; an order's or payment's key has the request's number."""
        random = np.random.default_rng(seed)
        kinds = (random.random(count) < NEW_ORDER).tolist()
        return [self._new_order(random, at) if kind else self._payment(random, at) for at, kind in enumerate(kinds)]

    def _new_order(self, random: np.random.Generator, at: int) -> Request:
        warehouse = int(random.integers(1, self._warehouses + 1))
        district = int(random.integers(1, DISTRICTS + 1))
        count = int(random.integers(LINES_MIN, LINES_MAX + 1))
        items = _nurand(random, NURAND_ITEM, 1, self._items, count).tolist()
        if random.random() < ROLLBACK:
            items[-1] = self._items + 1
        quantities = random.integers(1, QUANTITY_MAX + 1, count).tolist()
        lines = [
            [item, self._other(random, warehouse) if random.random() < REMOTE_LINE else warehouse, quantity]
            for item, quantity in zip(items, quantities, strict=True)
        ]
        return Request("order", f"o{at}", "new_order", (warehouse, district, self._customer(random), lines))

    def _payment(self, random: np.random.Generator, at: int) -> Request:
        warehouse = int(random.integers(1, self._warehouses + 1))
        district = int(random.integers(1, DISTRICTS + 1))
        home = f"{warehouse}:{district}"
        if random.random() >= AT_HOME:
            home = f"{self._other(random, warehouse)}:{random.integers(1, DISTRICTS + 1)}"
        customer: Any = self._customer(random)
        if random.random() < BY_NAME:
            names = min(NAMES, self._customers)
            customer = _last_name(int(_nurand(random, NURAND_NAME, 0, names - 1, 1)[0]))
        amount = int(random.integers(AMOUNT_MIN, AMOUNT_MAX + 1))
        return Request("history", f"p{at}", "payment", (warehouse, district, home, customer, amount))

    def _customer(self, random: np.random.Generator) -> int:
        return int(_nurand(random, NURAND_CUSTOMER, 1, self._customers, 1)[0])

    def _other(self, random: np.random.Generator, warehouse: int) -> int:
        """Another warehouse, if there is one."""
        if self._warehouses == 1:
            return warehouse
        return 1 + (warehouse + int(random.integers(0, self._warehouses - 1))) % self._warehouses

    # --- The checker -------------------------------------------------------------------------------------------------

    def check(self, requests: Sequence[Request], replies: Sequence[Reply], tables: Tables) -> list[str]:
        """The conditions of consistency that apply, and that the tables have just what was replied."""
        done = [(request, reply.value) for request, reply in zip(requests, replies, strict=True) if not reply.error]
        wrong = self._aborts(requests, replies)
        orders = {request.key: (request, value) for request, value in done if request.operator == "order"}
        payments = {request.key: (request, value) for request, value in done if request.operator == "history"}
        wrong += _orders(orders, tables) + self._totals(orders, tables)
        wrong += _districts(tables) + self._stock(tables) + self._payments(payments, tables)
        return wrong

    def _aborts(self, requests: Sequence[Request], replies: Sequence[Reply]) -> list[str]:
        """Just those orders are aborted that ask for an item that there is not."""
        wrong = []
        for request, reply in zip(requests, replies, strict=True):
            is_bad = request.operator == "order" and request.arguments[3][-1][0] > self._items
            if reply.error != (NO_ITEM if is_bad else None):
                wrong.append(f"{request.key}: {reply}")
        return wrong

    def _totals(self, orders: dict[Any, tuple[Request, Any]], tables: Tables) -> list[str]:
        """An order costs what its lines cost, less the customer's discount, with the taxes of both."""
        wrong = []
        for key, (request, value) in orders.items():
            warehouse, district, customer, lines = request.arguments
            home = f"{warehouse}:{district}"
            total = sum(quantity * tables["item"][item]["price"] for item, _, quantity in lines)
            tax = tables["warehouse"][str(warehouse)]["tax"] + tables["district"][home]["tax"]
            discount = tables["customer"][f"{home}:{customer}"]["discount"]
            if value[1] != total * (RATE - discount) * (RATE + tax) // RATE**2:
                wrong.append(f"order {key} costs {value[1]}")
        return wrong

    def _stock(self, tables: Tables) -> list[str]:
        """Each stock counts the lines that took from it, and what they took is gone or was refilled by 91 a time."""
        before = {row["key"]: row["quantity"] for row in self._rows["stock"]}
        taken: Counter[str] = Counter()
        count: Counter[str] = Counter()
        remote: Counter[str] = Counter()
        for line in tables["order_line"].values():
            key = f"{line['supply_w_id']}:{line['i_id']}"
            taken[key] += line["quantity"]
            count[key] += 1
            home = tables["order"][line["order"]]["district"].split(":")[0]
            remote[key] += str(line["supply_w_id"]) != home
        wrong = []
        for key, state in tables["stock"].items():
            if (state["ytd"], state["order_cnt"], state["remote_cnt"]) != (taken[key], count[key], remote[key]):
                wrong.append(f"stock {key} is {state}, expected {taken[key]}, {count[key]} and {remote[key]}")
            if state["quantity"] < 1 or (state["quantity"] + taken[key] - before[key]) % MORE:
                wrong.append(f"stock {key} is {state}, and was {before[key]}")
        return wrong

    def _payments(self, payments: dict[Any, tuple[Request, Any]], tables: Tables) -> list[str]:
        """W_YTD is the sum of D_YTD, and warehouses, districts and customers have what was paid."""
        wrong = []
        by_district: Counter[str] = Counter()
        paid: Counter[str] = Counter()
        times: Counter[str] = Counter()
        balances: dict[str, list[tuple[int, int]]] = defaultdict(list)
        expected = {}
        for key, (request, (customer, balance)) in payments.items():
            warehouse, district, home, who, amount = request.arguments
            last = tables["customer"][customer]["last"]
            if customer.rpartition(":")[0] != home or str(who) not in (last, customer.rpartition(":")[2]):
                wrong.append(f"payment {key} of {who} in {home} went to {customer}, {last}")
            expected[key] = {"district": f"{warehouse}:{district}", "customer": customer, "amount": amount}
            by_district[f"{warehouse}:{district}"] += amount
            paid[customer] += amount
            times[customer] += 1
            balances[customer].append((balance, amount))
        if tables["history"] != expected:
            wrong.append(f"{len(tables['history'])} rows of history, expected {len(expected)}, or others")
        sums: Counter[str] = Counter()
        for key, state in tables["district"].items():
            sums[key.split(":")[0]] += state["ytd"]
            if state["ytd"] != D_YTD + by_district[key]:
                wrong.append(f"district {key} has {state['ytd']}, expected {D_YTD + by_district[key]}")
        for key, state in tables["warehouse"].items():
            if state["ytd"] != sums[key]:
                wrong.append(f"warehouse {key} has {state['ytd']}, its districts {sums[key]}")
        for key, state in tables["customer"].items():
            found = (state["balance"], state["ytd_payment"], state["payment_cnt"])
            if found != (BALANCE - paid[key], PAID + paid[key], 1 + times[key]):
                wrong.append(f"customer {key} has {found}, and paid {paid[key]} in {times[key]} payments")
        for key, ones in balances.items():
            # Balances only fall, so the replies, sorted, are in the order of the payments.
            ones.sort(reverse=True)
            before = [BALANCE, *(balance for balance, _ in ones)]
            if any(balance != last - amount for last, (balance, amount) in zip(before, ones, strict=False)):
                wrong.append(f"payments of customer {key} left {ones}")
        return wrong


def _orders(orders: dict[Any, tuple[Request, Any]], tables: Tables) -> list[str]:
    """There are just the orders that were confirmed, each with its lines, which are as many as O_OL_CNT."""
    lines: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for key, line in tables["order_line"].items():
        number = int(key.rpartition(":")[2])
        lines[line["order"]][number] = [line["i_id"], line["supply_w_id"], line["quantity"]]
        if line["amount"] != line["quantity"] * tables["item"][line["i_id"]]["price"]:
            return [f"line {key} costs {line['amount']}"]
    wrong = []
    if orders.keys() != tables["order"].keys() or orders.keys() != lines.keys():
        wrong.append(f"{len(tables['order'])} orders with lines of {len(lines)}, expected {len(orders)}, or others")
    for key in orders.keys() & tables["order"].keys():
        request, (number, total) = orders[key]
        warehouse, district, customer, wanted = request.arguments
        expected = {
            "district": f"{warehouse}:{district}",
            "o_id": number,
            "c_id": customer,
            "ol_cnt": len(wanted),
            "all_local": int(all(supplier == warehouse for _, supplier, _ in wanted)),
            "total": total,
        }
        if tables["order"][key] != expected or lines[str(key)] != dict(enumerate(wanted, 1)):
            wrong.append(f"order {key} is {tables['order'][key]}, expected {expected}; its lines {lines[str(key)]}")
    return wrong


def _districts(tables: Tables) -> list[str]:
    """Orders and new orders of a district have the numbers from 1 to D_NEXT_O_ID - 1, each once."""
    wrong = []
    for name in ("order", "new_orders"):
        numbers: dict[str, list[int]] = defaultdict(list)
        for row in tables[name].values():
            numbers[row["district"]].append(row["o_id"])
        for key, state in tables["district"].items():
            if sorted(numbers[key]) != list(range(1, state["next_o_id"])):
                wrong.append(f"{name} of district {key} are {sorted(numbers[key])}; next is {state['next_o_id']}")
    return wrong


def _nurand(random: np.random.Generator, ored: int, first: int, last: int, count: int) -> np.ndarray[Any, Any]:
    """The uneven numbers of TPC-C, from `first` to `last`; its constant C is 0."""
    drawn = random.integers(0, ored + 1, count) | random.integers(first, last + 1, count)
    return drawn % (last - first + 1) + first


def _last_name(number: int) -> str:
    return "".join(SYLLABLES[int(digit)] for digit in f"{number:03d}")
