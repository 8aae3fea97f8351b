"""Requests that name entities by a counter: one of them commits in an epoch, and the log says so."""

import pytest

from tussock.compute import functions as fn
from tussock.statestore import connect

REQUESTS = 70


@pytest.mark.parametrize("by_counter", [True, False])
def test_a_request_that_is_put_off_all_the_time_is_told(caplog: pytest.LogCaptureFixture, *, by_counter: bool) -> None:
    """Story: a thousand such requests took minutes, and nothing but a count of deferrals told why."""
    shop, order = fn.Operator("shop"), fn.Operator("order")

    @shop.register
    async def sell(ctx: fn.FunctionContext, name: str) -> None:
        number = (ctx.get() or {"sold": 0})["sold"] + 1
        ctx.put({"sold": number})
        ctx.call_async("order", f"n{number}" if by_counter else name, "begin", number)

    @order.register
    async def begin(ctx: fn.FunctionContext, number: int) -> None:
        ctx.put({"number": number})

    with connect(f"memory://put-off-{by_counter}", compaction=False) as store:
        with fn.Runtime(store, "p", [shop, order], epoch_ms=100) as runtime:
            runtime.send_many("shop", "sell", ["s"] * REQUESTS, {"name": [f"o{at}" for at in range(REQUESTS)]})
            assert (runtime.stats()["deferrals"] > REQUESTS) == by_counter
            assert runtime.query("shop", "s") == {"sold": REQUESTS}
        told = [one.getMessage() for one in caplog.records if "waits for epoch after epoch" in one.getMessage()]
    assert len(told) == by_counter
    assert all("shop.sell" in one and "runs=100" in one for one in told)
