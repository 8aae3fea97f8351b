"""The page of a flow in a real Chromium: what it shows and what its buttons do, from the width of a phone to a desk."""

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.applications.serve_process import ServeProcess
from support.applications.served_orders import HOSTILE
from support.service.chromium import Browser, NoChromium, Page, find_chromium
from support.waiting import eventually
from tussock.compute import changelog as cl
from tussock.meta.node.auth.tokens import create_token
from tussock.statestore.base.system import RealSystem

SECONDS = 60
APP = "support.applications.served_orders:make"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    try:
        find_chromium()
    except NoChromium as error:
        pytest.skip(str(error))
    with ServeProcess((tmp_path_factory.mktemp("page") / "store").as_uri(), app=APP) as process:
        yield process


@pytest.fixture
def client(node: ServeProcess) -> Iterator[cl.Client]:
    """A flow that runs, with some transactions, a bad one, and one of a hostile name."""
    with cl.Client(node.address) as found:
        found.stop_auto_step()
        found.resume()
        for one in found.breakpoints:
            one.remove()
        prices = found.stream("prices")
        prices.push([cl.safedelete(k=key) for key in ("a", "h", "n", "zero", HOSTILE)]).result(SECONDS)
        for value in (1, 2, 5, 10):
            prices.push([cl.upsert(k="a", v=value), cl.upsert(k=HOSTILE, v=value * 2)]).result(SECONDS)
        prices.push([cl.upsert(k="a", v=20), cl.upsert(k="zero", v=0)]).result(SECONDS)
        eventually(lambda: all(one["queued"] == 0 for one in found.status()["streams"]))
        yield found


async def text_of(page: Page, name: str) -> str:
    return str(await page.evaluate(f"document.getElementById('{name}').innerText"))


async def click(page: Page, selector: str, label: str = "") -> None:
    """The first element of a selector, with that text if it is given."""
    chosen = f"[...document.querySelectorAll({selector!r})].find((one) => one.textContent.startsWith({label!r}))"
    await page.until(f"!!({chosen}) && !({chosen}).disabled")
    await page.evaluate(f"({chosen}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")


async def shows(page: Page, name: str, text: str) -> None:
    await page.until(f"document.getElementById('{name}').innerText.includes({json.dumps(text)})")


async def choose(page: Page, stream: str) -> None:
    await click(page, f'#streams [data-key="stream {stream}"]')
    await shows(page, "stream-title", f"Stream {stream}")


async def look_at_the_graph(page: Page, node: ServeProcess) -> None:
    await page.open(f"http://{node.http}/")
    await page.until("!!document.querySelector('#streams .stream')")
    assert await text_of(page, "name") == "orders (changelog)"
    assert await text_of(page, "stands") == "Running."
    counts = await text_of(page, "counts")
    assert all(word in counts for word in ("Changes", "Transactions", "Queued", "Bad", "Subscribers", "Breakpoints"))
    labels = await page.evaluate(
        "[...document.querySelectorAll('#streams .stream')].map((one) => one.getAttribute('aria-label'))"
    )
    assert [one.split(":")[0] for one in labels] == [
        f"Stream {name}" for name in ("prices", "shares", "halves", "moments")
    ]
    assert all("INPUT, 0 of" in one for one in labels)
    assert await page.evaluate("document.querySelectorAll('#streams > svg > path').length") == 2
    assert not await page.evaluate("document.getElementById('graph').checkVisibility()")


async def step_through(page: Page, client: cl.Client) -> None:
    """A breakpoint by a click; the transaction row by row, with old and new values; and on."""
    await choose(page, "shares")
    await click(page, '#streams [data-key="input shares"]')
    await page.until("!!document.querySelector('#streams .dot.set')")
    await asyncio.to_thread(
        client.stream("prices").push([cl.upsert(k="a", v=25), cl.upsert(k="n", v=50)]).result, SECONDS
    )
    await shows(page, "stands", "Paused at shares: COMPUTE, row 0, by breakpoint")
    await page.until("!!document.querySelector('#work-in [aria-current]')")
    row = await page.evaluate("document.querySelector('#work-in [aria-current]').innerText")
    assert row.split() == ["0", "UPDATE_BLOCK", "a", "20", "→", "25"]
    assert await page.evaluate("[...document.querySelectorAll('#work-in del')].map((one) => one.innerText)") == ["20"]
    await click(page, "button", "Step a row")
    await shows(page, "stands", "Paused at shares: COMPUTE, row 1")
    await page.until("document.querySelectorAll('#work-out tbody tr').length === 1")
    # What it was computed to, beside what the store has.
    assert (await page.evaluate("document.querySelector('#work-out tbody tr').innerText")).split() == [
        *("0", "UPSERT", "a", "10", "→", "4")
    ]
    await click(page, "button", "a transaction")
    await shows(page, "stands", "Paused at shares: PUT")
    await page.until("document.querySelectorAll('#work-out tbody tr').length === 2")


async def set_a_condition(page: Page, client: cl.Client) -> None:
    """With a text; one that is none is told; by a click it is removed again."""
    await page.evaluate("document.getElementById('break-condition').value = 'v >'")
    await click(page, "#break button")
    await shows(page, "told", "cannot be read")
    await page.evaluate("document.getElementById('break-condition').value = 'v > 49 and old.v is None'")
    await click(page, "#break button")
    await shows(page, "breakpoints", "v > 49 and old.v is None")
    await click(page, "#breakpoints tr:last-child button", "Disable")
    await shows(page, "breakpoints", "Enable")
    found = await asyncio.to_thread(lambda: [(one.condition, one.is_enabled) for one in client.breakpoints])
    assert ("", True) in found
    assert len([one for one in found if not one[1]]) == 1
    await click(page, '#streams [data-key="input shares"]')
    await page.until("!document.querySelector('#streams .dot.set, #streams .dot.off')")
    await click(page, "#pause", "Resume")
    await shows(page, "stands", "Running.")


async def look_back(page: Page, client: cl.Client) -> None:
    """Histories, with what an update has replaced; back by ten, and to the newest."""
    prices = client.stream("prices")
    for value in range(1, 16):
        await asyncio.to_thread(prices.push([cl.upsert(k="h", v=value)]).result, SECONDS)
    await choose(page, "prices")
    newest = (await asyncio.to_thread(lambda: prices.out_history(1)))[0].seq
    await shows(page, "history", f"{newest}: 1 record")
    await page.evaluate("document.querySelector('#history details').open = true")
    assert (await page.evaluate("document.querySelector('#history tbody tr').innerText")).split() == [
        *("0", "UPDATE_BLOCK", "h", "14", "→", "15")
    ]
    await click(page, "#older")
    await page.until(f"document.querySelector('#history details').dataset.seq === '{newest - 10}'")
    await click(page, "#newer")
    await page.until(f"document.querySelector('#history details').dataset.seq === '{newest}'")
    await click(page, "#latest")


async def try_again(page: Page) -> None:
    """What a taken transaction would publish, and what the bad one would come to."""
    await choose(page, "shares")
    await page.evaluate(
        "document.getElementById('side').value = 'taken', "
        "document.getElementById('side').dispatchEvent(new Event('change'))"
    )
    await click(page, "#history button", "What if")
    await shows(page, "tried", "would publish what it has published.")
    await click(page, "#look-bad")
    await shows(page, "bad", "ZeroDivisionError")
    await click(page, "#bad button", "What if")
    await shows(page, "tried", "would be bad, in COMPUTE, row 1: ZeroDivisionError")
    await click(page, "#bad button", "Replay")
    await page.until("document.querySelectorAll('#bad tbody tr').length > 0")


async def keep_it(page: Page, width: int, dark: bool, folder: Path) -> None:
    picture = await page.screenshot()
    assert len(picture) > 10_000
    kept = Path(os.environ.get("TUSSOCK_PICTURES", folder))
    (kept / f"flow-{width}{'-dark' if dark else ''}.png").write_bytes(picture)


@pytest.mark.parametrize(("width", "dark"), [(360, False), (390, True), (1440, False)])
def test_a_flow_is_looked_into_at_a_width(
    node: ServeProcess, client: cl.Client, width: int, dark: bool, tmp_path: Path
) -> None:
    """All of it by clicks; nothing is wider than the window, and no text of others runs."""

    async def body() -> None:
        async with Browser() as page:
            await page.resize(width, 800, dark=dark)
            await look_at_the_graph(page, node)
            await step_through(page, client)
            await keep_it(page, width, dark, tmp_path)
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            await set_a_condition(page, client)
            await look_back(page, client)
            await try_again(page)
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            assert HOSTILE in await text_of(page, "newest")
            assert not await page.evaluate("window.hacked")
            # What the browser notes of the condition that was refused on purpose.
            assert [one for one in page.complaints if "400" not in one] == []
            await keep_it(page, width + 1, dark, tmp_path)

    asyncio.run(asyncio.wait_for(body(), 300))


def test_keys_do_what_clicks_do(node: ServeProcess, client: cl.Client) -> None:
    """A stream is chosen by Enter, and the focus stays where it is while figures change."""

    async def body() -> None:
        async with Browser() as page:
            await page.resize(1000, 800)
            await page.open(f"http://{node.http}/")
            await page.until("!!document.querySelector('#streams .stream')")
            await page.evaluate("document.querySelector('#streams [data-key=\"stream halves\"]').focus()")
            enter = "new KeyboardEvent('keydown', {key: 'Enter', bubbles: true})"
            await page.evaluate(f"document.activeElement.dispatchEvent({enter})")
            await shows(page, "stream-title", "Stream halves")
            await asyncio.to_thread(client.stream("prices").push([cl.upsert(k="f", v=1)]).result, SECONDS)
            await shows(page, "newest", "INSERT")
            await page.until("document.activeElement.dataset.key === 'stream halves'")

    asyncio.run(asyncio.wait_for(body(), 240))


def test_a_fast_stream_is_sampled(tmp_path: Path) -> None:
    """While it takes all it can, the page shows a few of its changes, says of how many, and answers at once."""
    try:
        find_chromium()
    except NoChromium as error:
        pytest.skip(str(error))
    rows = 10_000
    is_over = threading.Event()

    def feed(client: cl.Client) -> None:
        ticks = client.stream("ticks")
        pushed = []
        for number in itertools.count():
            if is_over.is_set():
                break
            keys = pa.array([f"k{at}" for at in range(rows)])
            columns = {"k": keys, "v": pa.repeat(number, rows), "_op": pa.repeat("UPSERT", rows)}
            pushed.append(ticks.push(pa.table(columns)))
            if number >= 8:
                pushed[number - 8].result(SECONDS)
        for one in pushed:
            one.result(SECONDS)

    async def body(node: ServeProcess) -> None:
        async with Browser() as page:
            await page.resize(1000, 800)
            await page.open(f"http://{node.http}/")
            await page.until("!!document.querySelector('#streams .stream')")
            await choose(page, "copied")
            await page.until("/^A sample: 20 of [0-9,]{5,} changes/.test(document.getElementById('sample').innerText)")
            assert await page.evaluate("document.querySelectorAll('#newest tbody tr').length") == 20
            took = []
            for _ in range(20):
                began = time.monotonic()
                await asyncio.to_thread(node.get, "/status")
                took.append(time.monotonic() - began)
            # A median of some milliseconds; a busy machine is no reason to fail.
            assert sorted(took)[10] < 1.0
            await choose(page, "doubled")
            await shows(page, "stream-title", "Stream doubled")

    with (
        ServeProcess((tmp_path / "store").as_uri(), app="support.applications.served_orders:busy") as node,
        cl.Client(node.address) as client,
    ):
        feeding = threading.Thread(target=feed, args=(client,))
        feeding.start()
        try:
            asyncio.run(asyncio.wait_for(body(node), 240))
        finally:
            is_over.set()
            feeding.join()


def test_who_may_only_look_is_told(tmp_path: Path) -> None:
    """A reader sees all of it; a button tells that it needs an admin, and other sites cannot press it."""
    made = {role: create_token(role, role, RealSystem()) for role in ("reader", "admin")}
    file = tmp_path / "tokens"
    file.write_text("".join(line + "\n" for _, line in made.values()))

    async def body(node: ServeProcess) -> None:
        async with Browser() as page:
            await page.resize(390, 800)
            await page.open(f"http://{node.http}/")
            await page.until("!document.getElementById('ask').hidden")
            shown = "[...document.querySelectorAll('h2')].filter((one) => one.checkVisibility()).length"
            assert await page.evaluate(shown) == 0
            await page.evaluate(
                f"document.getElementById('token').value = {made['reader'][0]!r}, "
                "document.querySelector('#ask button').click()"
            )
            await page.until("!!document.querySelector('#streams .stream')")
            await click(page, "#pause", "Pause")
            await shows(page, "told", "give one with the role admin")
            assert await text_of(page, "stands") == "Running."

    with ServeProcess((tmp_path / "store").as_uri(), "--tokens.file", str(file), app=APP) as node:
        try:
            find_chromium()
        except NoChromium as error:
            pytest.skip(str(error))
        asyncio.run(asyncio.wait_for(body(node), 240))
