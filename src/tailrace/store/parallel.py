"""Reads of several objects at once: Arrow lets others run while it decodes, and storage waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(run: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """What a function returns for each task, in their order."""
    if len(tasks) <= 1:
        return [run(task) for task in tasks]
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="tailrace-read") as pool:
        return list(pool.map(run, tasks))
