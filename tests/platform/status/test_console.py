"""The console in a real Chromium, over a real store: what users see, and that nothing of the store is executed.

Every test also checks that the browser had nothing to complain about: no script error, nothing that the
Content-Security-Policy refused.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from support.service.chromium import Browser, NoChromium, Page, find_chromium
from support.service.pictures import png_pixels
from support.service.platforms import Platform
from support.service.statuses import StoreStatus
from tussock.meta.node.auth.authentication import Presented
from tussock.meta.node.auth.caller import ANYONE, Caller
from tussock.meta.node.wire.http_port import start_http
from tussock.meta.rpc.methods import Role
from tussock.meta.server.status.document import ServiceStatus
from tussock.meta.server.status.version_parts import loss_statuses
from tussock.meta.server.wire.http_server import make_app
from tussock.meta.version.version import Version
from tussock.statestore import StateStore, connect
from tussock.statestore.contract.losses import AcceptedLoss, LostRange
from tussock.statestore.errors import Unauthenticated

HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
TRACK, ACCENT, L0, DIM = (0xE8, 0xED, 0xEA), (0x2F, 0x85, 0x5A), (0x9A, 0x6B, 0x00), (0x5F, 0x6B, 0x65)
READY = "document.getElementById('main').getAttribute('aria-busy') === 'false'"
ROW = (
    "[...document.querySelectorAll('#tables-list tbody tr')].find((row) => row.querySelector('.name').innerText === {})"
)


class Place(NamedTuple):
    """A real store and the status that is shown of it."""

    store: StateStore
    status: StoreStatus


@pytest.fixture(scope="module", autouse=True)
def _chromium() -> None:
    try:
        find_chromium()
    except NoChromium as error:
        pytest.skip(str(error))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A store with a compacted table under fresh commits, an empty one, and one with a hostile name."""
    url = (tmp_path / "store").as_uri()
    with connect(url, compaction=False) as store:
        status = StoreStatus(url)
        flights = store.create_table("flights")
        store.create_table("empty")
        store.create_table(HOSTILE)
        for part in range(4):
            commit(store, [(f"{part}-{row:05d}".encode(), b"x" * 90) for row in range(3000)])
        store.compact("flights")
        commit(store, [(f"new-{row:05d}".encode(), b"x" * 90) for row in range(3000)])
        assert flights.get(b"0-00001") == b"x" * 90
        yield Place(store, status)
        status.close()


def commit(store: StateStore, rows: list[tuple[bytes, bytes | None]]) -> int:
    epoch = store.new_epoch()
    store.table("flights").ingest_batch(rows, epoch)
    return store.commit_epoch(epoch)


@contextlib.asynccontextmanager
async def console(
    status: Callable[[], ServiceStatus], authenticate: Callable[[Presented], Caller] = lambda _: ANYONE
) -> AsyncIterator[tuple[Page, str]]:
    """The console in a browser, shown without a token."""
    runner, port = await start_http(
        make_app(status, lambda: status().replica, lambda: b"", authenticate), "127.0.0.1", 0
    )
    try:
        async with Browser() as page:
            await page.resize(1280, 900)
            await page.open(f"http://127.0.0.1:{port}/")
            yield page, f"http://127.0.0.1:{port}/"
    finally:
        await runner.cleanup()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 240))


def row_of(name: str) -> str:
    """JavaScript: the row of a table."""
    return ROW.format(repr(name))


async def bars_of(page: Page, name: str) -> list[dict[str, Any]]:
    """The bars of a table's levels: their text, their place, and how much of each is filled."""
    found: list[dict[str, Any]] = await page.evaluate(
        f"""[...{row_of(name)}.querySelectorAll('.levels li')].map((level) => {{
            const bar = level.querySelector('svg').getBoundingClientRect();
            const fill = level.querySelector('.fill').getBoundingClientRect();
            return {{text: level.innerText, label: level.querySelector('svg').getAttribute('aria-label'),
                     left: bar.left, top: bar.top + scrollY, width: bar.width, height: bar.height,
                     share: fill.width / bar.width}};
        }})"""
    )
    return found


def test_tables_and_levels_are_shown(place: Place) -> None:
    """Names, rows, sizes and runs are the store's, and each bar is as long as its level is large."""

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.until(READY)
            told = next(table for table in place.status().tables if table.name == "flights")
            assert [level.level for level in told.levels] == [0, 1]
            text = await page.evaluate(row_of("flights") + ".innerText")
            assert all(part in text for part in ("15,000", "raw", "1 of 128"))
            bars = await bars_of(page, "flights")
            most = max(level.bytes for level in told.levels)
            assert [round(bar["share"], 2) for bar in bars] == [round(level.bytes / most, 2) for level in told.levels]
            assert "1 run, 1 SST" in bars[0]["label"]
            assert "% full" in bars[1]["text"]
            assert "empty" in await page.evaluate(row_of("empty") + ".querySelector('.wide').innerText")
            assert place.status().store_url == await page.evaluate("document.getElementById('store').innerText")
            assert "Leader" in await page.evaluate("document.getElementById('replica').innerText")
            assert page.complaints == []

    run(body)


def test_screenshot_has_bars_and_charts(place: Place) -> None:
    """In the picture a bar has its colour up to its end and the track's after that; the charts draw lines."""

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.until(READY)
            # The second of the commits has to be over before the charts have it.
            await page.until("!/\\D0\\/s/.test(document.getElementById('figures').innerText)")
            bars = await bars_of(page, "flights")
            boxes = await page.evaluate(
                "[...document.querySelectorAll('.chart canvas')].map((one) => one.getBoundingClientRect().toJSON())"
            )
            pixels = png_pixels(await page.screenshot())
            for bar, color in zip(bars, (L0, ACCENT), strict=True):
                middle = pixels[int(bar["top"] + bar["height"] / 2), int(bar["left"]) : int(bar["left"] + bar["width"])]
                filled = int(len(middle) * bar["share"])
                assert np.all(middle[3 : filled - 3] == color), bar
                assert np.all(middle[filled + 3 : -3] == TRACK), bar
            assert bars[0]["share"] < 0.9
            assert bars[1]["share"] == 1
            assert len(boxes) == 2
            for box in boxes:
                left, top, right, bottom = (int(box[side]) for side in ("left", "top", "right", "bottom"))
                chart = pixels[top:bottom, left:right].astype(int)
                # All but the lines is grey; they have soft edges, so only how colourful they are is known.
                assert np.count_nonzero(chart.max(axis=2) - chart.min(axis=2) > 60) > 20, box

    run(body)


@pytest.mark.parametrize("width", [1400, 360])
def test_history_and_losses_are_shown(place: Place, width: int) -> None:
    """History is a grey bar below the levels; a damaged SST that was put aside stays in a list."""
    for _ in range(2):
        commit(place.store, [(f"0-{row:05d}".encode(), b"z" * 90) for row in range(3000)])
    place.store.compact("flights")
    loss = AcceptedLoss(
        sst=place.store.version().find_table("flights").levels.history[0].ssts[0],  # type: ignore[union-attr]
        table_id=1,
        table=HOSTILE,
        rows=1234,
        deletes=0,
        bytes=4096,
        min_epoch=1,
        max_epoch=place.store.committed_epoch,
        ranges=(LostRange(first=b"a", end=b"b"),),
        at_ms=1_795_000_000_000,
        by="host:7:ab",
    )

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.resize(width, 1400)
            await page.until(READY)
            await page.until(f"document.documentElement.scrollWidth === {width}")
            (told,) = [table for table in place.status().tables if table.name == "flights"]
            bars = await bars_of(page, "flights")
            assert [bar["text"].split()[0] for bar in bars] == ["L1", "history"]
            most = max(told.levels[0].bytes, told.history_bytes)
            assert round(bars[1]["share"], 2) == round(told.history_bytes / most, 2)
            assert f"{told.history_runs} run, {told.history_ssts} SST" in bars[1]["label"]
            pixels = png_pixels(await page.screenshot())
            middle = pixels[int(bars[1]["top"] + bars[1]["height"] / 2), int(bars[1]["left"]) + 3]
            assert tuple(middle) == DIM
            assert await page.evaluate("document.getElementById('losses').hidden")
            place.status.fields["losses"] = loss_statuses(Version(accepted_losses=(loss,)))
            await page.until("!document.getElementById('losses').hidden")
            shown = await page.evaluate("document.getElementById('losses').innerText")
            assert all(part in shown for part in ("1,234", "of history", loss.sst.id, "kept", "host:7:ab", HOSTILE))
            await page.until(f"document.documentElement.scrollWidth === {width}")
            assert page.complaints == []

    run(body)


def test_commit_shows_without_reload(place: Place) -> None:
    """A commit appears on the open page: the rows, the bar, the epoch and the rates."""

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.until(READY)
            await page.evaluate("window.sameDocument = true")
            epoch = await asyncio.to_thread(
                commit, place.store, [(b"later-%05d" % row, b"y" * 90) for row in range(500)]
            )
            await page.until(f"{row_of('flights')}.innerText.includes('15,500')")
            assert "2 runs" in (await bars_of(page, "flights"))[0]["label"]
            # Epochs have more bits than a JavaScript number.
            assert epoch > 2**53
            assert str(epoch) in await page.evaluate("document.getElementById('upkeep').innerText")
            await page.until("/Epochs\\s0\\.\\d\\/s/.test(document.getElementById('figures').innerText)")
            assert await page.evaluate("window.sameDocument")
            assert page.complaints == []

    run(body)


def test_sessions_pins_and_tables_of_a_live_platform_are_shown(tmp_path: Path) -> None:
    """For a leader with clients the page shows their sessions, their pins, and their tables as they are created."""

    async def body(platform: Platform) -> None:
        async with console(platform.leader.report.status) as (page, _):
            await page.until(READY)
            assert "No tables yet" in await page.evaluate("document.getElementById('tables-list').innerText")
            store = await asyncio.to_thread(platform.connect)
            await asyncio.to_thread(store.create_table, "flights")
            await page.until("document.getElementById('tables-list').innerText.includes('flights')")
            epoch = await asyncio.to_thread(commit, store, [(b"a", b"1")])
            snapshot = await asyncio.to_thread(store.pin_snapshot)
            await page.until(f"document.getElementById('pins-list').innerText.includes('{epoch}')")
            nodes = await page.evaluate("document.getElementById('nodes-list').innerText")
            assert platform.leader.address in nodes
            assert "client" in nodes
            assert "No compactor is connected" in await page.evaluate("document.getElementById('problems').innerText")
            await asyncio.to_thread(snapshot.close)
            await page.until("document.getElementById('pins-list').innerText.includes('Nobody holds a pin')")
            assert page.complaints == []

    with Platform((tmp_path / "store").as_uri()) as platform:
        run(lambda: body(platform))


def test_names_of_the_store_are_text(place: Place) -> None:
    """A name of a table, compactor or writer that looks like markup is shown as it is, and not executed."""
    place.status.fields["replica"] = replace(place.status().replica, address=HOSTILE, leader=HOSTILE)
    place.status.stalls = {3: f"table {HOSTILE} has 131 uncompacted runs"}

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.until(READY)
            names = await page.evaluate(
                "[...document.querySelectorAll('#tables-list .name')].map((one) => one.innerText)"
            )
            # The one whose writers wait is first.
            assert names == [HOSTILE, "empty", "flights"]
            assert HOSTILE in await page.evaluate("document.getElementById('problems').innerText")
            assert HOSTILE in await page.evaluate("document.getElementById('replica').innerText")
            assert await page.evaluate("document.querySelectorAll('main img, main script').length") == 0
            assert await page.evaluate("window.hacked === undefined")
            assert page.complaints == []
            # Were a name put in as markup after all, the browser itself would refuse it.
            with pytest.raises(AssertionError, match="TrustedHTML"):
                await page.evaluate(f"document.body.innerHTML = {HOSTILE!r}")

    run(body)


def test_problems_come_first(place: Place) -> None:
    """Problems stand on top, errors before warnings, and in the title of the tab."""
    status = place.status()
    place.status.fields["replica"] = replace(status.replica, role="follower", leader="")
    place.status.fields["compaction"] = replace(status.compaction, paused=True, reason="moving the bucket")
    place.status.stalls = {1: "table 'flights' has 131 uncompacted runs; writes wait from 128 on"}

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.until(READY)
            found = await page.evaluate("[...document.querySelectorAll('#problems li')].map((one) => one.innerText)")
            assert [text.split()[0] for text in found] == ["Error", "Error", "Warning"]
            assert "No replica leads" in found[0]
            assert "131 uncompacted runs" in found[1]
            assert "moving the bucket" in found[2]
            assert (await page.evaluate("document.title")).startswith("(2) ")
            first = await page.evaluate("document.querySelector('main').firstElementChild.id")
            assert first == "problems"

    run(body)


def test_lost_connection_is_shown_and_heals(place: Place) -> None:
    """While the service does not answer, a banner says so and since when; then it goes."""
    broken = [False]

    def status() -> Any:
        if broken[0]:
            raise RuntimeError("the test broke this replica")
        return place.status()

    async def body() -> None:
        async with console(status) as (page, _):
            await page.until(READY)
            broken[0] = True
            await page.until("!document.getElementById('connection').hidden")
            banner = await page.evaluate("document.getElementById('connection').innerText")
            assert "Connection lost" in banner
            assert "the service answered 500" in banner
            assert "15,000" in await page.evaluate(row_of("flights") + ".innerText")
            broken[0] = False
            await page.until("document.getElementById('connection').hidden")

    run(body)


def test_the_page_asks_for_a_token_and_keeps_it_in_the_tab(place: Place) -> None:
    """The page shows nothing of the store without a token, says when one is refused, and forgets it on demand."""

    def authenticate(presented: Presented) -> Caller:
        if presented.authorization != "Bearer right":
            raise Unauthenticated("the bearer token is not known here")
        return Caller("ann", Role.READER)

    async def enter(page: Page, token: str) -> None:
        await page.until("document.getElementById('token-dialog').open")
        await page.send("Input.insertText", text=token)
        await page.send("Input.dispatchKeyEvent", type="keyDown", key="Enter", text="\r")

    async def body() -> None:
        async with console(place.status, authenticate) as (page, url):
            await enter(page, "wrong")
            await page.until("document.getElementById('token-why').innerText.includes('not known here')")
            assert "flights" not in await page.evaluate("document.documentElement.outerHTML")
            await enter(page, "right")
            await page.until(READY)
            assert "flights" in await page.evaluate("document.getElementById('tables-list').innerText")
            assert await page.evaluate("JSON.stringify(sessionStorage)") == '{"tussock-token":"right"}'
            assert await page.evaluate("localStorage.length + document.cookie.length") == 0
            assert await page.evaluate("location.href") == url
            async with page.loading():
                await page.evaluate("document.getElementById('forget').click()")
            await page.until("document.getElementById('token-dialog').open")
            assert await page.evaluate("sessionStorage.length") == 0
            assert "flights" not in await page.evaluate("document.documentElement.outerHTML")

    run(body)


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("dark", [False, True])
def test_page_fits_the_window(place: Place, width: int, dark: bool) -> None:
    """Nothing is wider than the window, in light and in dark, and text has contrast."""

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.resize(width, 800, dark=dark)
            await page.until(READY)
            # Charts take the new width in a later frame.
            await page.until(f"document.documentElement.scrollWidth === {width}")
            colors = await page.evaluate(
                "(style => [style.color, style.backgroundColor])(getComputedStyle(document.body))"
                ".map((color) => color.match(/\\d+/g).map(Number))"
            )
            text, ground = (sum(color) for color in colors)
            assert (text > 600 and ground < 150) if dark else (text < 150 and ground > 600)

    run(body)


def test_keyboard_reaches_everything(place: Place) -> None:
    """Tab leads to the link that skips ahead, then to the filter; typing filters the tables."""
    for number in range(8):
        place.store.create_table(f"more-{number}")

    async def body() -> None:
        async with console(place.status) as (page, _):
            await page.until(READY)
            seen = []
            for _ in range(2):
                await page.send("Input.dispatchKeyEvent", type="rawKeyDown", key="Tab", windowsVirtualKeyCode=9)
                seen.append(await page.evaluate("document.activeElement.className || document.activeElement.id"))
            assert seen == ["skip", "tables-filter"]
            await page.send("Input.insertText", text="FLI")
            await page.until("document.querySelectorAll('#tables-list tbody tr').length === 1")
            # A status later the filter still holds, and has the focus.
            await page.evaluate(
                "new Promise((done) => new MutationObserver(done).observe(document.getElementById('figures'),"
                " {subtree: true, characterData: true, childList: true}))"
            )
            assert await page.evaluate("document.activeElement.id") == "tables-filter"
            assert await page.evaluate("document.querySelectorAll('#tables-list tbody tr').length") == 1

    run(body)
