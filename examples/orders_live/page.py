"""A page of what the shop is owed, kept current by two subscriptions: `/` the page, `/state` what it asks for.

It runs in the process of the flow; the node of `tussock serve` has its own page, for operators.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tussock.compute import changelog as cl

__all__ = ["LivePage"]

NEWEST = 12
"""Changes that are shown."""

HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Orders</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1rem; color: #1c1c1c; }
main { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1.5rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .2rem .5rem; text-align: right; }
td:first-child, th:first-child { text-align: left; } tbody tr:nth-child(odd) { background: #f2f2f0; }
ol { padding-left: 1.2rem; font-size: .9rem; } li { overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #eee; } tbody tr:nth-child(odd) { background: #242424; }
}
</style></head><body>
<h1>Orders</h1><p id="total" role="status">Nothing yet</p>
<main><section><h2>Who owes most</h2><table><thead><tr><th>customer<th>open<th>orders<th>ordered</tr></thead>
<tbody id="owing"></tbody></table></section>
<section><h2>Newest changes</h2><ol id="newest"></ol></section></main>
<script>
const money = cents => (cents / 100).toFixed(2);
const cell = text => { const one = document.createElement("td"); one.textContent = text; return one; };
async function show() {
  try {
    const state = await (await fetch("state")).json();
    document.getElementById("total").textContent =
      `${state.orders} orders of ${state.customers} customers, ${money(state.open)} open; transaction ${state.seq}`;
    document.getElementById("owing").replaceChildren(...state.owing.map(row => {
      const line = document.createElement("tr");
      line.append(cell(row.customer), cell(money(row.open)), cell(row.orders), cell(money(row.cents)));
      return line;
    }));
    document.getElementById("newest").replaceChildren(...state.newest.map(text => {
      const line = document.createElement("li"); line.textContent = text; return line;
    }));
  } catch (error) { document.getElementById("total").textContent = "The flow does not answer"; }
  setTimeout(show, 500);
}
show();
</script></body></html>
"""


class LivePage:
    """Of a running flow, until `close`."""

    def __init__(self, flow: cl.Flow, port: int = 0, host: str = "127.0.0.1") -> None:
        """`port` 0: a free one."""
        self._lock = threading.Lock()
        self._customers: dict[int, dict[str, Any]] = {}
        self._owing: dict[int, dict[str, Any]] = {}
        self._newest: list[str] = []
        self._seq = 0
        self._readers = [
            self._begin(flow.streams["customers"], self._customers),
            self._begin(flow.streams["owing"], self._owing),
        ]
        self._server = ThreadingHTTPServer((host, port), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/"

    def state(self) -> dict[str, Any]:
        """What the page shows."""
        with self._lock:
            rows = list(self._customers.values())
            return {
                "seq": self._seq,
                "customers": len(rows),
                "orders": sum(row["orders"] for row in rows),
                "open": sum(row["open"] for row in rows),
                "owing": sorted(self._owing.values(), key=lambda row: (-row["open"], row["customer"])),
                "newest": self._newest[::-1],
            }

    def close(self) -> None:
        """End."""
        for one in self._readers:
            one.close()
        self._server.shutdown()
        self._server.server_close()

    def _begin(self, stream: cl.Stream, rows: dict[int, dict[str, Any]]) -> cl.Subscription:
        # The rows as they are, and then each change: the number says where they meet.
        begun, number = stream.snapshot()
        rows.update({row["customer"]: row for row in begun})
        found = stream.subscribe(from_seq=number + 1)
        threading.Thread(target=self._follow, args=(found, rows), daemon=True).start()
        return found

    def _follow(self, found: cl.Subscription, rows: dict[int, dict[str, Any]]) -> None:
        for one in found:
            with self._lock:
                for record in one:
                    if record.op == "DELETE":
                        rows.pop(record["customer"], None)
                    else:
                        rows[record["customer"]] = dict(record)
                if rows is self._customers:
                    self._seq = one.seq
                    self._newest = [*self._newest, *(repr(record) for record in one)][-NEWEST:]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/state":
                    self._answer(json.dumps(page.state()).encode(), "application/json")
                elif self.path == "/":
                    self._answer(HTML.encode(), "text/html; charset=utf-8")
                else:
                    self.send_error(404)

            def _answer(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                return

        return Handler
