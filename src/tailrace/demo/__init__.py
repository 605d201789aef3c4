"""`tailrace demo`: a small shop, live changes, and derived data that follows them.

`play` is the order of what happens; `shop` and `derived` are the lake's contents, and `words` what
they are made of; `writer` is the second process, which `child` holds; `freshness` looks, `display`
and `terminal` show; `results` come at the end.
"""

from __future__ import annotations

from pathlib import Path


def run(
    *,
    seconds: float = 60.0,
    scale: float = 1.0,
    keep: str | Path | None = None,
    output: str = "text",
) -> int:
    """Run the demo; returns an exit status: 0 if every check was ok.

    `keep` is a directory for the lake, new or from an earlier run; without it, the lake is
    temporary. With `output="json"` one document is printed at the end, and messages go to standard
    error. Wrong arguments raise an InvalidError, other failures another TailraceError. Ctrl-C ends
    the live part early; anywhere else it ends the process at once, with status 130.
    """
    from tailrace.demo.play import play  # the writer's process needs none of it

    return play(seconds=seconds, scale=scale, keep=keep, output=output)
