"""The driver's HTTP endpoint: `/healthz` and `/readyz` for the kubelet, `/status` for people; all return one JSON.

`/metrics` is for Prometheus; it works if the application has added a `TussockListener`.
"""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from tussock.compute.driver.watch import Watch
from tussock.compute.spark.batches.listener import metrics_text

__all__ = ["answer_on", "serve_status"]


def serve_status(watch: Watch, host: str, port: int) -> ThreadingHTTPServer:
    """A server that reports on `watch`; the caller runs its `serve_forever`. Port 0 picks a free one."""

    class Handler(BaseHTTPRequestHandler):
        """Handles GET only."""

        timeout = 5.0

        def do_GET(self) -> None:
            """Send one response."""
            code, body = answer_on(self.path, watch)
            self.send_response(code)
            is_text = self.path == "/metrics" and code == 200
            self.send_header("Content-Type", "text/plain; version=0.0.4" if is_text else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    return ThreadingHTTPServer((host, port), Handler)


def answer_on(path: str, watch: Watch) -> tuple[int, bytes]:
    """Status code and body of the response."""
    body = msgspec.json.encode(watch.status)
    match path:
        case "/status":
            return 200, body
        case "/healthz":
            return (200 if watch.is_alive else 503), body
        case "/readyz":
            return (200 if watch.is_ready else 503), body
        case "/metrics":
            text = metrics_text()
            return (
                (404, b'{"error":"no metrics: add a TussockListener, with prometheus-client"}')
                if text is None
                else (
                    200,
                    text,
                )
            )
    return 404, b'{"error":"there are /healthz, /readyz, /status and /metrics"}'
