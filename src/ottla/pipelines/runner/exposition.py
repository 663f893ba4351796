"""A run's figures for Prometheus, on a port of its own: `GET /metrics`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final

from ottla.metrics.text import TEXT_TYPE, labels
from ottla.pipelines.runner.errors import PipelineError
from ottla.pipelines.runner.state import RUNNING, STOPPING, QueryStatus, Status
from ottla.server.listeners.exposure import is_loopback

REQUEST_SECONDS_MAX: Final = 10.0
"""A thread waits so long for a client that says nothing."""

FAMILIES: Final[tuple[tuple[str, str, str, Callable[[QueryStatus], float | None]], ...]] = (
    ("ottla_pipeline_rows_total", "counter", "Records read since the run began.", lambda query: query.rows),
    ("ottla_pipeline_rows_per_second", "gauge", "Records/s of the last batch.", lambda query: query.rows_per_s),
    ("ottla_pipeline_batch", "gauge", "Number of the last batch.", lambda query: query.batch),
    ("ottla_pipeline_batch_seconds", "gauge", "Seconds that the last batch took.", lambda query: query.batch_s),
    ("ottla_pipeline_lag_records", "gauge", "Records not processed yet.", lambda query: query.lag_records),
    ("ottla_pipeline_lag_seconds", "gauge", "Age of the oldest record not processed yet.", lambda query: query.lag_s),
    ("ottla_pipeline_state_rows", "gauge", "Rows in the state of its operators.", lambda query: query.state_rows),
    ("ottla_pipeline_state_bytes", "gauge", "Bytes of the state of its operators.", lambda query: query.state_bytes),
    ("ottla_pipeline_late_rows_total", "counter", "Rows that arrived too late.", lambda query: query.late_rows),
    ("ottla_pipeline_restarts_total", "counter", "Restarts after failures.", lambda query: query.restarts),
)


def text(status: Status) -> str:
    """Prometheus's text format 0.0.4."""
    lines = []
    for name, kind, about, value in FAMILIES:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        found = [(labels(pipeline=status.name, query=each.name), value(each)) for each in status.queries]
        lines += [f"{name}{where} {sample}" for where, sample in found if sample is not None]
    where = labels(pipeline=status.name)
    lines += [
        "# HELP ottla_pipeline_dead_letters Records in its dead-letter topic.",
        "# TYPE ottla_pipeline_dead_letters gauge",
        f"ottla_pipeline_dead_letters{where} {status.dead_letters}",
        "# HELP ottla_pipeline_up 1 if its queries are running.",
        "# TYPE ottla_pipeline_up gauge",
        f"ottla_pipeline_up{where} {int(status.state in (RUNNING, STOPPING))}",
    ]
    return "\n".join(lines) + "\n"


class MetricsServer:
    """Serves metrics, as a context manager, until its end. Raises PipelineError for an address in use, and for one at
    which strangers could read them, unless OTTLA_ALLOW_OPEN_LISTENERS=true says that this is meant."""

    def __init__(self, host: str, port: int, status: Callable[[], Status]) -> None:
        if not is_loopback(host) and os.environ.get("OTTLA_ALLOW_OPEN_LISTENERS", "").lower() != "true":
            raise PipelineError(
                f"metrics at {host or 'every interface'}:{port} would be for everybody who reaches this machine: they "
                "have no login. Serve them at 127.0.0.1, or allow it: OTTLA_ALLOW_OPEN_LISTENERS=true"
            )

        class Handler(BaseHTTPRequestHandler):
            timeout = REQUEST_SECONDS_MAX

            def do_GET(self) -> None:
                if self.path.partition("?")[0] not in ("/metrics", "/"):
                    self.send_error(404)
                    return
                body = text(status()).encode()
                self.send_response(200)
                self.send_header("Content-Type", TEXT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                """Scrapes are not news."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise PipelineError(f"metrics cannot be served at {host}:{port}: {error.strerror}") from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> MetricsServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
