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

# Asks whether the server encrypts, before the first real message.
_ENCRYPTION = (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30")
_BEGIN = b"\0BEGIN\0"
_COMMIT = b"COMMIT\0"  # not "READ COMMITTED"


class Lose(Enum):
    """What becomes of the next COMMIT that passes."""

    NOTHING = "nothing"
    ANSWER = "answer"  # the server gets it, and the client never hears of it
    REQUEST = "request"  # the server never gets it


class _Questions:
    """Finds in what a client sends where it asks for answers: a query, or the end of several."""

    def __init__(self) -> None:
        self._rest, self._started, self._begins = b"", False, False

    def read(self, data: bytes) -> int:
        """How many there are in some more bytes."""
        self._rest += data
        asked = 0
        while True:
            # A message is its kind, its length and the rest; the first ones have no kind.
            head = 1 if self._started else 0
            if len(self._rest) < head + 4:
                return asked
            length = int.from_bytes(self._rest[head : head + 4], "big")
            if len(self._rest) < head + length:
                return asked
            if not self._started:
                self._started = self._rest[4:8] not in _ENCRYPTION
            else:
                asked += self._asks()
            self._rest = self._rest[head + length :]

    def _asks(self) -> bool:
        kind = self._rest[:1]
        if kind == b"P":
            self._begins = self._rest[5:].startswith(_BEGIN)
        if kind == b"S" and self._begins:  # it goes on with the first statements
            self._begins = False
            return False
        return kind in (b"Q", b"S")


class Proxy:
    """Passes bytes between clients and a server."""

    def __init__(self, port: int, *, delay: float = 0.0) -> None:
        """`delay` is what a round trip takes longer, in seconds."""
        self._target, self._delay = port, delay
        self.round_trips = 0  # how often a client has asked for answers
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
                for one in (client, server):  # as the client itself does
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._open |= {client, server}
                for source, target, is_client in ((client, server, True), (server, client, False)):
                    arguments = (source, target, is_client)
                    threading.Thread(target=self._pass, args=arguments, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        questions = _Questions()
        with suppress(OSError):
            while data := source.recv(65536):
                if is_client:
                    asked = questions.read(data)
                    with self._lock:
                        self.round_trips += asked
                    if asked:
                        time.sleep(self._delay)
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
