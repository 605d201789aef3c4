"""Log lines: a constant message and fields, through Python's own logging.

Whoever embeds Tailrace decides where they go; nothing is printed unless somebody asks for it.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def get_logger(name: str) -> Any:
    """A logger whose lines read `event='…' key=value …`."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
    )


def log_to_stderr() -> None:
    """Print what is logged on standard error, unless logging is set up already."""
    root = logging.getLogger("tailrace")
    if root.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)
