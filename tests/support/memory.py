"""A place for files that is in memory, where there is one.

Every commit waits for the disk several times, and a new database is a thousand small files: on most
disks, that would be the better part of a test.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_PLACE = Path("/dev/shm")
_ENOUGH = 4 * 2**30  # bytes, a multiple of what a run takes; containers often have far less


def place() -> Path | None:
    """Where to make directories, if memory may be used for them."""
    if os.access(_PLACE, os.W_OK) and shutil.disk_usage(_PLACE).free >= _ENOUGH:
        return _PLACE
    return None
