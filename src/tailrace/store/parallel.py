"""Reads of several objects at once: Arrow lets others run while it decodes, and storage waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tailrace.objects import Storage

T = TypeVar("T")
R = TypeVar("R")


# Rows from which on it pays to decode them by several threads.
WORTH_THREADS = 10_000


def pays(storage: Storage, rows: int) -> bool:
    """Whether threads are worth it for a read of so many rows: always, where storage waits."""
    return storage.local is None or rows >= WORTH_THREADS


def each(run: Callable[[T], R], tasks: Sequence[T], *, threads: bool = True) -> list[R]:
    """What a function returns for each task, in their order."""
    if len(tasks) <= 1 or not threads:
        return [run(task) for task in tasks]
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="tailrace-read") as pool:
        return list(pool.map(run, tasks))
