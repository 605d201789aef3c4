"""The seed of random cases: the same at each `make test`, another at each `make stress`.

`TAILRACE_SEED=n` chooses it, to run again what has failed.
"""

from __future__ import annotations

import os
import secrets

_OF_THIS_RUN = "TAILRACE_RUN_SEED"


def draw() -> None:
    """Choose a seed for this run and for the processes that it starts."""
    os.environ[_OF_THIS_RUN] = str(secrets.randbelow(2**32))


def seed() -> int:
    """The seed of this run."""
    return int(os.environ.get("TAILRACE_SEED") or os.environ.get(_OF_THIS_RUN) or 1)
