"""Log lines: a constant message and fields, through Python's own logging.

Whoever embeds Tailrace decides where they go; nothing is printed unless somebody asks for it.
"""

from __future__ import annotations

import logging
import sys
from typing import Any


class _Logger:
    """Made when its first line is written: most programs that import us never write one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog

        made = structlog.wrap_logger(
            logging.getLogger(self._name),
            wrapper_class=structlog.stdlib.BoundLogger,
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
        )
        found = getattr(made, method)
        self.__dict__[method] = found
        return found


def get_logger(name: str) -> Any:
    """A logger whose lines read `event='…' key=value …`."""
    return _Logger(name)


def log_to_stderr() -> None:
    """Print what is logged on standard error, unless logging is set up already."""
    root = logging.getLogger("tailrace")
    if root.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
