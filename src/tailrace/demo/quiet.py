"""Keeps what Spark and its workers print off the screen.

They write to file descriptor 2 itself, so it is redirected there: into a file without a name, whose
contents are kept if something goes wrong. Python's own `sys.stderr` goes there meanwhile, too.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tailrace.cli.spark import stderr_aside
from tailrace.errors import InvalidError


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
