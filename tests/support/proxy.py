"""A TCP proxy that counts round trips, makes them longer, and loses what a test wants lost."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMMIT = b"COMMIT\0"  # not "READ COMMITTED"


class Lose(Enum):
    """What becomes of the next COMMIT that passes."""

    NOTHING = "nothing"
    ANSWER = "answer"  # the server gets it, and the client never hears of it
    REQUEST = "request"  # the server never gets it


class Proxy:
    """Passes bytes between clients and a server."""

    def __init__(self, port: int, *, delay: float = 0.0) -> None:
        """`delay` is what a round trip takes longer, in seconds."""
        self._target, self._delay = port, delay
        self.round_trips = 0  # how often a client sent something after an answer, or at first
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.lose = Lose.NOTHING
        self.stays_away = False  # after a loss, nobody gets through until `come_back`
        self._away = False
        threading.Thread(target=self._accept, daemon=True).start()

    def come_back(self) -> None:
        """Let clients through again."""
        self.stays_away = self._away = False

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._away:
                    client.close()
                    continue
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # nobody there
                    client.close()
                    continue
                with self._lock:
                    self._open |= {client, server}
                asked = threading.Event()  # set from a question to its answer
                for source, target, is_client in ((client, server, True), (server, client, False)):
                    arguments = (source, target, is_client, asked)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(
        self, source: socket.socket, target: socket.socket, is_client: bool, asked: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_client and not asked.is_set():
                    asked.set()
                    with self._lock:
                        self.round_trips += 1
                    time.sleep(self._delay)
                elif not is_client:
                    asked.clear()
                if is_client and _COMMIT in data and self.lose is not Lose.NOTHING:
                    self._cut(source, target, data)
                    return
                target.sendall(data)
        self._end(source, target)

    def _cut(self, client: socket.socket, server: socket.socket, data: bytes) -> None:
        lost, self.lose = self.lose, Lose.NOTHING
        self._away = self.stays_away
        # The client first: what the server answers must not reach it.
        client.shutdown(socket.SHUT_WR)
        if lost is Lose.ANSWER:
            server.sendall(data)
            server.shutdown(socket.SHUT_WR)
            while server.recv(65536):  # until it has done it, and has left
                pass
        self._end(client, server)

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._open -= set(sockets)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            left = list(self._open)
        self._end(*left)


@contextmanager
def proxy_to(port: int, *, delay: float = 0.0) -> Iterator[Proxy]:
    """A proxy to a server on this machine."""
    proxy = Proxy(port, delay=delay)
    try:
        yield proxy
    finally:
        proxy.close()
