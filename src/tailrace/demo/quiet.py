"""Keeps what Spark and its workers print off the screen.

They write to file descriptor 2 itself, so it is redirected there: into a file without a name, whose
contents are kept if something goes wrong. Python's own `sys.stderr` goes there meanwhile, too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from tailrace.errors import InvalidError

_STDERR = 2


@contextmanager
def stderr_aside() -> Iterator[IO[str]]:
    """Redirect standard error; yields the real one, for messages."""
    sys.stderr.flush()
    with (
        tempfile.TemporaryFile() as aside,
        os.fdopen(os.dup(_STDERR), "w", encoding="utf-8") as real,
    ):
        os.dup2(aside.fileno(), _STDERR)
        try:
            yield real
        except InvalidError:
            raise  # the message says it all
        except Exception:
            _keep(aside, real)
            raise
        finally:
            sys.stderr.flush()
            os.dup2(real.fileno(), _STDERR)


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
