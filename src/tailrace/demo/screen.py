"""Where the demo shows itself: a terminal that is redrawn, or plain lines one after the other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from tailrace.demo import tables
from tailrace.demo.freshness import Picture

_PLAIN_WIDTH = 120
_PLAIN_PAUSE = 5.0  # seconds between two lines of progress

Draw = Callable[[Picture, float], None]


class Screen:
    """Shows phases, messages and tables; how, depends on where they go."""

    def __init__(self, stream: IO[str]) -> None:
        dumb = os.environ.get("TERM", "") in {"", "dumb"} or bool(os.environ.get("NO_COLOR"))
        self.is_lively = stream.isatty() and not dumb
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
                live.update(tables.live(picture, passed, seconds, size), refresh=True)

            yield draw

    def _print_now_and_then(self, seconds: float) -> Draw:
        pause = min(_PLAIN_PAUSE, max(1.0, seconds / 4))
        due = pause

        def draw(picture: Picture, passed: float) -> None:
            nonlocal due
            if passed >= due:
                due += pause
                line = tables.progress_line(picture, passed, seconds)
                self._console.print(Text(line), soft_wrap=True)  # one line each, however long

        return draw
