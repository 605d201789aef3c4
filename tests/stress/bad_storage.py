"""An S3 endpoint that passes requests on to a good one, and answers badly."""

from __future__ import annotations

import http.client
import threading
from collections import Counter
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from random import Random

_RATE = 0.12  # of requests that are answered badly


class Fault(StrEnum):
    """What happens to a request."""

    REFUSE = "refuse"  # the connection is closed at once
    FAIL = "fail"  # 503
    STALL = "stall"  # the answer comes late
    CUT = "cut"  # the body ends in the middle
    SHORT = "short"  # the body is too short, and said to be whole
    LOSE = "lose"  # it was done, and the answer never comes


class BadStorage:
    """Listens on a port of its own while the block lasts."""

    def __init__(self, endpoint: str, random: Random) -> None:
        self._target = urlsplit(endpoint).netloc
        self._random, self._lock = random, threading.Lock()
        self.done: Counter[Fault] = Counter()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"storage": self})
        )
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> BadStorage:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def draw(self) -> Fault | None:
        """What to do with the next request."""
        with self._lock:
            if self._random.random() >= _RATE:
                return None
            fault = self._random.choice(list(Fault))
            self.done[fault] += 1
            return fault

    def ask(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any, bytes]:
        """What the good one answers."""
        connection = http.client.HTTPConnection(self._target, timeout=30)
        try:
            connection.request(method, path, body, dict(headers.items()))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    storage: BadStorage

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.storage.draw()
        if fault is Fault.REFUSE:
            self.close_connection = True
            return
        if fault is Fault.FAIL:
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        status, headers, answer = self.storage.ask(self.command, self.path, self.headers, body)
        if fault is Fault.LOSE:
            self.close_connection = True
            return
        if fault is Fault.STALL:
            threading.Event().wait(1.0)
        self._answer(status, headers, answer, fault)

    def _answer(self, status: int, headers: Any, answer: bytes, fault: Fault | None) -> None:
        if fault is Fault.SHORT and self.command == "GET" and status in (200, 206):
            answer = answer[: len(answer) // 2]
        is_head = self.command == "HEAD"
        length = str(len(answer))
        self.send_response(status)
        for name, value in headers:
            if name.lower() == "content-length" and is_head:
                length = value
            elif name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if fault is Fault.CUT:
            answer = answer[: len(answer) // 2]
            self.close_connection = True
        if not is_head:
            self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass  # noqa: N815  (the server's names)

    def log_message(self, *_: object) -> None:
        pass
