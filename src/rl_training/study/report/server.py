"""Show a report on this machine, and bring it up to date while runs progress."""

from __future__ import annotations

import hashlib
import os
import shlex
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from rl_training.errors import ConfigError, RLTrainingError
from rl_training.study.report.page import PageFacts, error_page, report_page
from rl_training.study.report.results import CurveCache
from rl_training.study.report.writing import ReportSettings, descriptions, report_title
from rl_training.text import reason, shown

HOST = "127.0.0.1"
DEFAULT_PORT = 8008
MIN_SECONDS = 2.0
"""Minimum time between two readings of a study, however many browsers ask."""

REFRESH = 5
"""Seconds between two refreshes of a browser."""

Page = tuple[bytes, str]
"""A page, and a tag that changes with it."""


class LiveReport:
    """The current page of a study, read again at most every few seconds."""

    def __init__(
        self,
        path: Path,
        settings: ReportSettings,
        *,
        seconds: float = MIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._settings = path, settings
        self._seconds, self._clock = seconds, clock
        self._cache = CurveCache()
        self._lock = threading.Lock()
        self._page: Page | None = None
        self._read_at = 0.0

    def page(self) -> Page:
        """Return the page and its tag; a study that cannot be read gives a page that says so."""
        with self._lock:
            if self._page is None or self._clock() >= self._read_at + self._seconds:
                began = self._clock()
                self._page = self._read()
                # A study that takes long to read is read less often.
                self._read_at = self._clock() + (self._clock() - began)
            return self._page

    def check(self) -> None:
        """Raise an error if the study cannot be reported."""
        self._settings.analyze([self._path], self._cache)

    def _read(self) -> Page:
        try:
            analysis = self._settings.analyze([self._path], self._cache)
            facts = PageFacts(
                title=report_title(analysis.results),
                created="live",
                command=shlex.join(["rl-training", "study", "serve", str(self._path)]),
                refresh=REFRESH,
                descriptions=descriptions(analysis.results),
            )
            page = report_page(analysis, facts)
        except RLTrainingError as error:
            page = error_page(str(error), REFRESH)
        return page, f'"{hashlib.sha256(page).hexdigest()[:32]}"'


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for the page, and nothing else."""

    server: _Server
    server_version = "rl_training"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            # Otherwise, a page on the web could read the report by a name that leads here.
            self._send(HTTPStatus.MISDIRECTED_REQUEST, b"This server answers to localhost only.\n")
        elif urlsplit(self.path).path != "/":
            self._send(HTTPStatus.NOT_FOUND, b"There is only one page: /\n")
        else:
            page, tag = self.server.report.page()
            if self.headers.get("If-None-Match") == tag:
                self._send(HTTPStatus.NOT_MODIFIED, None, tag)
            else:
                self._send(HTTPStatus.OK, page, tag, html=True, with_body=with_body)

    def _send(
        self,
        status: HTTPStatus,
        body: bytes | None,
        tag: str | None = None,
        *,
        html: bool = False,
        with_body: bool = True,
    ) -> None:
        self.send_response(status)
        if body is not None:
            self.send_header("Content-Type", f"text/{'html' if html else 'plain'}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        if tag is not None:
            self.send_header("ETag", tag)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()
        if body is not None and with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing for each request."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # On Windows, this option would let two servers share a port.
    allow_reuse_address = os.name == "posix"

    def __init__(self, address: tuple[str, int], report: LiveReport) -> None:
        super().__init__(address, _Handler)
        self.report = report
        port = self.server_address[1]
        self.hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        if port == 80:
            self.hosts |= {HOST, "localhost"}

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore browsers that hang up."""


class ReportServer:
    """Serves the report of a study on the loopback until it is closed."""

    def __init__(
        self, path: str | Path, port: int = DEFAULT_PORT, settings: ReportSettings | None = None
    ) -> None:
        """Read the study once, and open the port; 0 is any free one.

        Raises:
            ConfigError: The folder is not a study, or the port cannot be used.
        """
        if not 0 <= port < 1 << 16:
            raise ConfigError(f"port = {shown(port)}: should be from 0 (any free one) to 65535.")
        report = LiveReport(Path(path), settings or ReportSettings())
        report.check()
        try:
            self._server = _Server((HOST, port), report)
        except OSError as error:
            raise ConfigError(
                f"Port {port} cannot be used ({reason(error)}): choose another one with --port, or "
                "--port 0 for any free one."
            ) from None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self._server.server_address[1]}/"

    def serve(self) -> None:
        """Answer requests until `close` is called or the process is interrupted."""
        self._server.serve_forever(poll_interval=0.2)

    def start(self) -> None:
        """Answer requests in a thread."""
        self._thread = threading.Thread(target=self.serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and free the port."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
