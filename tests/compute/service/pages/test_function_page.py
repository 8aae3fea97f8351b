"""The page of a program of functions in a real Chromium: what it shows, at the width of a phone and of a desk."""

import asyncio
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.applications.serve_process import ServeProcess
from support.service.chromium import Browser, NoChromium, Page, find_chromium
from tussock.compute import functions as fn
from tussock.meta.node.auth.tokens import create_token
from tussock.statestore.base.system import RealSystem

SECONDS = 60
APP = "support.applications.served_bank:with_limit"
HOSTILE = "<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A bank with transfers that met each other, one that failed, one that was stopped, and one of a hostile name."""
    try:
        find_chromium()
    except NoChromium as error:
        pytest.skip(str(error))
    with ServeProcess((tmp_path_factory.mktemp("page") / "store").as_uri(), app=APP) as process:
        with fn.Client(process.address) as client:
            asked = [client.send("account", f"p{at % 20}", "transfer", "p0", 1) for at in range(1, 400) if at % 20]
            for one in asked:
                one.exception(SECONDS)
            client.send("account", "p1", "transfer", "p2", 10_000).exception(SECONDS)
            client.send("purse", 1, "count_for_ever").exception(SECONDS)
            client.send("cell", HOSTILE, "write", 1).result(SECONDS)
            client.send("cell", "all", "add_to_all", ["a", "b", "c"], request_id="17").result(SECONDS)
            client.send("cell", "b", "copy_of", "a", request_id="copy").result(SECONDS)
        yield process


async def text_of(page: Page, name: str) -> str:
    return str(await page.evaluate(f"document.getElementById('{name}').innerText"))


async def show_calls(page: Page, which: str) -> list[str]:
    """Ask for a call graph; the texts of what is drawn."""
    await page.evaluate(
        f"document.getElementById('calls').replaceChildren(), document.getElementById('which').value = {which!r}, "
        "document.querySelector('#calls-of button').click()"
    )
    await page.until("!!document.querySelector('#calls > *')")
    found: list[str] = await page.evaluate(
        "[...document.querySelectorAll('#calls svg text')].map((one) => one.textContent)"
    )
    return found


async def look(page: Page, node: ServeProcess) -> None:
    await page.open(f"http://{node.http}/")
    await page.until("!!document.querySelector('#transactions td')")
    counts = await text_of(page, "counts")
    assert all(word in counts for word in ("Epochs", "Lock-free", "Lock phase", "Aborted", "Deferrals"))
    assert await text_of(page, "name") == "bank (functions)"
    assert await text_of(page, "state") == "running"
    transactions = await text_of(page, "transactions")
    assert "cell b: copy_of" in transactions
    assert HOSTILE in transactions
    assert "not enough credit: p1" in transactions
    # All have paid the same account.
    row = await page.evaluate("document.querySelector('#hot tbody tr').innerText")
    assert row.split()[:2] == ["account", "p0"]
    assert not await page.evaluate("document.getElementById('graph').checkVisibility()")
    # The first one is that which was stopped; all transfers are there, though a few were timed.
    slow = await page.evaluate("[...document.querySelectorAll('#slow tbody tr')].map((one) => one.innerText)")
    assert slow[0].startswith("purse.count_for_ever, stopped by the time limit: 1")
    transfers = next(line for line in slow if line.startswith("account.transfer"))
    assert re.fullmatch(r"account\.transfer\s+~\d{3}\s+[\d.]+ (µs|ms)\s+[\d.]+ (µs|ms|s)\s+\d+\.\d %", transfers)
    assert "sample" in await page.evaluate("document.getElementById('slow').parentElement.innerText")


async def look_at_calls(page: Page) -> None:
    """By the id of a request, be it a number or not; by a transaction's number; of one that there is not."""
    assert await show_calls(page, "17") == [
        *("cell all", "add_to_all, 1/1", "cell a", "add, 1/3", "cell b", "add, 1/3", "cell c", "add, 1/3")
    ]
    assert await page.evaluate("document.querySelectorAll('#calls svg path.fired').length") == 3
    assert await show_calls(page, "copy") == ["cell b", "copy_of, 1/1", "cell a", "value, 1/2, awaited"]
    assert "Transaction 1, epoch 1" in (await show_calls(page, "1") and await text_of(page, "calls"))
    assert await show_calls(page, "nobody") == []
    assert "not among the newest" in await text_of(page, "calls")
    # A click on a number of the newest transactions does the same.
    newest = await page.evaluate("document.querySelector('#transactions button').innerText")
    await page.evaluate("document.getElementById('calls').replaceChildren()")
    await page.evaluate("document.querySelector('#transactions button').click()")
    await page.until("!!document.querySelector('#calls svg')")
    assert f"Transaction {newest}, " in await text_of(page, "calls")
    await show_calls(page, "17")


@pytest.mark.parametrize(("width", "dark"), [(360, False), (390, True), (1440, False)])
def test_the_page_at_a_width(node: ServeProcess, width: int, dark: bool, tmp_path: Path) -> None:
    """Figures, transactions, hot keys and call graphs are there, nothing is wider than the window, nothing is run."""

    async def body() -> None:
        async with Browser() as page:
            await page.resize(width, 800, dark=dark)
            await look(page, node)
            await look_at_calls(page)
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            # All rows of figures are full, and no fact of a failure is broken within.
            columns = "getComputedStyle(document.getElementById('counts')).gridTemplateColumns.split(' ').length"
            assert await page.evaluate(f"document.querySelectorAll('#counts > div').length % {columns}") == 0
            facts = "[...document.querySelectorAll('#failures td:not(:last-child)')]"
            assert await page.evaluate(f"Math.max(...{facts}.map((one) => one.getClientRects()[0].height))") < 40
            assert not await page.evaluate("window.hacked")
            assert page.complaints == []
            picture = await page.screenshot()
            assert len(picture) > 10_000
            kept = Path(os.environ.get("TUSSOCK_PICTURES", tmp_path))
            (kept / f"functions-{width}{'-dark' if dark else ''}.png").write_bytes(picture)

    asyncio.run(asyncio.wait_for(body(), 240))


def test_before_a_token_the_page_shows_nothing(tmp_path: Path) -> None:
    """Story: a node of functions showed the boxes of procedures, and told somebody before a browser of `connect`."""
    try:
        find_chromium()
    except NoChromium as error:
        pytest.skip(str(error))
    secret, line = create_token("reader", "reader", RealSystem())
    file = tmp_path / "tokens"
    file.write_text(line + "\n")

    async def give(page: Page, token: str) -> None:
        await page.evaluate(
            f"document.getElementById('token').value = {token!r}, document.querySelector('#ask button').click()"
        )

    async def body(node: ServeProcess) -> None:
        async with Browser() as page:
            await page.resize(390, 800, dark=False)
            await page.open(f"http://{node.http}/")
            await page.until("!document.getElementById('ask').hidden")
            shown = "[...document.querySelectorAll('h2')].filter((one) => one.checkVisibility()).length"
            assert await page.evaluate(shown) == 0
            assert not await page.evaluate("document.getElementById('trouble').checkVisibility()")
            await give(page, "wrong")
            await page.until("!document.getElementById('trouble').hidden")
            assert await text_of(page, "trouble") == "The token is not valid, or not any more: give another one."
            await give(page, secret)
            await page.until("!!document.querySelector('#transactions > *') && document.getElementById('ask').hidden")
            assert not await page.evaluate("document.getElementById('graph').checkVisibility()")
            assert await page.evaluate("document.getElementById('failures').checkVisibility()")

    with ServeProcess((tmp_path / "store").as_uri(), "--tokens.file", str(file), app=APP) as node:
        asyncio.run(asyncio.wait_for(body(node), 240))
