"""Log lines: a constant message and fields, through Python's own logging.

The program that embeds Tailrace decides where they go; by default nothing is printed.
"""

from __future__ import annotations

import logging
import sys
from typing import Any


class _Logger:
    """Created with its first line: most programs that import Tailrace never log one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog

        logger = structlog.wrap_logger(
            logging.getLogger(self._name),
            wrapper_class=structlog.stdlib.BoundLogger,
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.processors.KeyValueRenderer(key_order=["event"]),
            ],
        )
        write = getattr(logger, method)
        self.__dict__[method] = write
        return write


def get_logger(name: str) -> Any:
    """A logger whose lines read `event='…' key=value …`."""
    return _Logger(name)


def log_to_stderr() -> None:
    """Log to standard error, unless logging is configured already."""
    root = logging.getLogger("tailrace")
    if root.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
