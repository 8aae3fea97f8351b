"""A real Chromium, found on this machine and driven over its DevTools protocol; nothing but a WebSocket is needed.

Each `Browser` has a new profile, so nothing of another run (storage, cache) is in it.
"""

import asyncio
import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_SECONDS_MAX = 120
WAIT_SECONDS_MAX = 120
# Headless and as root, in a container without a GPU; and without background requests.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class NoChromium(Exception):
    """There is no Chromium here; the text says what to do."""


def find_chromium() -> str:
    """The browser that `$CHROMIUM_BIN` names, or the first on the PATH."""
    named = os.environ.get("CHROMIUM_BIN")
    if named and not os.access(named, os.X_OK):
        raise NoChromium(f"$CHROMIUM_BIN names {named}, which is not an executable file")
    found = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise NoChromium("no Chromium: set $CHROMIUM_BIN, or install it (Debian: apt-get install chromium)")
    return found


class Page:
    """One tab. What its scripts throw and what the browser refuses them is collected in `complaints`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        self.complaints: list[str] = []

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        number = next(self._ids)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(answer, WAIT_SECONDS_MAX)

    async def open(self, url: str) -> None:
        """Go there, and wait until it is loaded."""
        async with self.loading():
            await self.send("Page.navigate", url=url)

    @contextlib.asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """What is done in the block loads a page; wait until it has."""
        self._loaded.clear()
        yield
        await asyncio.wait_for(self._loaded.wait(), WAIT_SECONDS_MAX)

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        answer = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until an expression holds; the error shows what the page shows."""
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS_MAX
        while not (value := await self.evaluate(expression)):
            if asyncio.get_running_loop().time() > deadline:
                text = await self.evaluate("document.body.innerText")
                raise AssertionError(f"never held: {expression}\ncomplaints: {self.complaints}\n{text}")
            await asyncio.sleep(0.05)
        return value

    async def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """A window of that size, in light or dark."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        # They would be laid out, and then missing from the picture.
        await self.send("Emulation.setScrollbarsHidden", hidden=True)
        scheme = "dark" if dark else "light"
        await self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def screenshot(self) -> bytes:
        """The whole page as PNG, below the window's edge too."""
        answer = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    async def _read(self) -> None:
        async for message in self._socket:
            event = message.json()
            if "id" in event:
                answer = self._answers.pop(event["id"])
                if "error" in event:
                    answer.set_exception(AssertionError(event["error"]))
                else:
                    answer.set_result(event["result"])
            elif event["method"] == "Page.loadEventFired":
                self._loaded.set()
            elif event["method"] == "Runtime.exceptionThrown":
                self.complaints.append(str(event["params"]["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                entry = event["params"]["entry"]
                self.complaints.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")

    async def close(self) -> None:
        """Stop listening."""
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


class Browser:
    """A running Chromium; `async with Browser() as page`."""

    async def __aenter__(self) -> Page:
        self._profile = tempfile.TemporaryDirectory(prefix="tussock-chromium-", ignore_cleanup_errors=True)
        self._process = await asyncio.create_subprocess_exec(
            find_chromium(),
            *FLAGS,
            f"--user-data-dir={self._profile.name}",
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            # A new group, since Chromium is many processes.
            start_new_session=True,
        )
        try:
            port = await asyncio.wait_for(self._port(), START_SECONDS_MAX)
            self._session = aiohttp.ClientSession()
            async with self._session.get(f"http://127.0.0.1:{port}/json/list") as listed:
                tab = next(one for one in await listed.json() if one["type"] == "page")
            socket = await self._session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
        except BaseException:
            await self._end()
            raise
        self._page = Page(socket)
        for domain in ("Page", "Runtime", "Log"):
            await self._page.send(f"{domain}.enable")
        return self._page

    async def __aexit__(self, *_: object) -> None:
        await self._page.close()
        await self._session.close()
        await self._end()

    async def _port(self) -> int:
        """The port that it chose; it writes it into its profile."""
        told = Path(self._profile.name, "DevToolsActivePort")
        while True:
            if told.exists() and (lines := told.read_text().split()):
                return int(lines[0])
            if self._process.returncode is not None:
                raise RuntimeError(f"Chromium ended with exit code {self._process.returncode} before it listened")
            await asyncio.sleep(0.05)

    async def _end(self) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, 15)
            try:
                await asyncio.wait_for(self._process.wait(), 10)
            except TimeoutError:
                os.killpg(self._process.pid, 9)
                await self._process.wait()
        self._profile.cleanup()
