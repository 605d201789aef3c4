"""The demo and its terminal: what it shows there, what it keeps away from there, and Ctrl-C.

Spark and its workers write to file descriptor 2 itself, so that is redirected: into a file without
a name, whose contents are kept if something goes wrong. Python's own `sys.stderr` goes there
meanwhile, too. Ctrl-C ends the live part; anywhere else it ends the demo at once, which means that
nothing is waited for. That is safe at any moment: what has not been committed was never there, and
whoever opens the lake next goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, Any, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from tailrace.cli.spark import stderr_aside
from tailrace.demo import display
from tailrace.demo.freshness import Picture
from tailrace.errors import InvalidError


class Closable(Protocol):
    """Something to close in the end."""

    def close(self) -> None:
        """Wait for what runs, and leave."""


C = TypeVar("C", bound=Closable)


@contextmanager
def closing(thing: C) -> Iterator[C]:
    """Close at the end or at an error, but not at Ctrl-C, which waits for nothing."""
    try:
        yield thing
    except Exception:
        thing.close()
        raise
    else:
        thing.close()


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling(signal.SIGTERM, on_signal):
        yield


@contextmanager
def first_only_sets(event: threading.Event) -> Iterator[None]:
    """Let the first Ctrl-C set an event; a second one interrupts as usual."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        event.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with _handling(signal.SIGINT, on_signal):
        yield


@contextmanager
def _handling(number: signal.Signals, handler: Any) -> Iterator[None]:
    old: Any = None
    with suppress(ValueError):  # only the main thread may
        old = signal.signal(number, handler)
    try:
        yield
    finally:
        if old is not None:
            signal.signal(number, old)


@contextmanager
def quietly() -> Iterator[IO[str]]:
    """Redirect standard error; yields the real one, for messages."""
    with stderr_aside() as (aside, real):
        try:
            yield real
        except InvalidError:
            raise  # the message says it all
        except Exception:
            _keep(aside, real)
            raise


def _keep(aside: IO[bytes], real: IO[str]) -> None:
    sys.stderr.flush()
    aside.seek(0)
    said = aside.read()
    if said.strip():
        with tempfile.NamedTemporaryFile(
            prefix="tailrace-demo-", suffix=".log", delete=False
        ) as kept:
            kept.write(said)
        print(f"What Spark and its workers said is in {kept.name}", file=real, flush=True)


_PLAIN_WIDTH = 120
_PLAIN_PAUSE = 5.0  # seconds between two lines of progress

Draw = Callable[[Picture, float], None]


class Screen:
    """Shows phases, messages and tables; how, depends on where they go."""

    def __init__(self, stream: IO[str]) -> None:
        dumb = os.environ.get("TERM", "") in {"", "dumb"} or bool(os.environ.get("NO_COLOR"))
        self.is_lively = stream.isatty() and not dumb
        # Seconds between two pictures of the live part: lines come one by one, and less often.
        self.pause = 0.3 if self.is_lively else 1.0
        self._phases = 0
        if self.is_lively:
            self._console = Console(file=stream, highlight=False)
        else:
            self._console = Console(
                file=stream,
                highlight=False,
                force_terminal=False,
                no_color=True,
                width=None if stream.isatty() else _PLAIN_WIDTH,
            )

    def phase(self, title: str, sentence: str) -> None:
        """Begin a part of the demo, and say what one is going to see."""
        self._phases += 1
        self._console.print()
        self._console.print(Text.assemble((f"{self._phases}  {title}", "bold cyan")))
        self._console.print(Text(sentence))

    def say(self, text: str) -> None:
        """A remark."""
        self._console.print(Text(text, style="dim"))

    def command(self, text: str) -> None:
        """A line to be copied: it is not broken."""
        self._console.print(Text(f"  {text}", style="green"), soft_wrap=True)

    def show(self, what: RenderableType) -> None:
        """A table."""
        self._console.print()
        self._console.print(what)
        self._console.print()

    @contextmanager
    def working(self, doing: str, done: str) -> Iterator[Callable[[str], None]]:
        """Say what is being waited for, and then what was done and how long it took.

        Gives a function that says something else meanwhile, where that can be replaced.
        """
        began = time.monotonic()
        if self.is_lively:
            with self._console.status(Text(f"{doing} …")) as status:
                yield lambda text: status.update(Text(f"{text} …"))
        else:
            self.say(f"{doing} …")
            yield lambda _text: None
        self.say(f"{done}: {time.monotonic() - began:.1f} s")

    @contextmanager
    def live(self, seconds: float) -> Iterator[Draw]:
        """Show one picture after the other; the second argument is the time that has passed."""
        if not self.is_lively:
            yield self._print_now_and_then(seconds)
            return
        self._console.print()
        with Live(console=self._console, auto_refresh=False) as live:

            def draw(picture: Picture, passed: float) -> None:
                size = self._console.size
                live.update(display.live(picture, passed, seconds, size), refresh=True)

            yield draw

    def _print_now_and_then(self, seconds: float) -> Draw:
        pause = min(_PLAIN_PAUSE, max(1.0, seconds / 4))
        due = pause

        def draw(picture: Picture, passed: float) -> None:
            nonlocal due
            if passed >= due:
                due += pause
                line = display.progress_line(picture, passed, seconds)
                self._console.print(Text(line), soft_wrap=True)  # one line each, however long

        return draw
