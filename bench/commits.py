"""Commits per second of 8 processes on PostgreSQL, each to its own table and all to one.

The server is the tests': it doesn't flush to the disk. The objects are flushed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import tailrace
from bench.bench import Bench
from bench.report import Row

PROCESSES, SECONDS = 8, 10.0


def measure(bench: Bench) -> Iterator[Row]:
    for kind in ("a table each", "one table"):
        url = bench.postgres.url(bench.postgres.create_database())
        with bench.directory() as place:
            done, conflicts = _run(url, place, one=kind == "one table")
        yield Row(
            what=f"commits of 10 rows, {PROCESSES} processes, PostgreSQL, {kind}",
            measured=f"{done / SECONDS:.0f} per second",
            compared=f"{conflicts} conflicts; the server's fsync is off",
        )


def _run(url: str, place: Path, *, one: bool) -> tuple[int, int]:
    names = ["t0" if one else f"t{number}" for number in range(PROCESSES)]
    with tailrace.connect(url, data=place) as lake:
        for name in sorted(set(names)):
            lake.create_table(name, {"id": "bigint", "note": "string"})
        before = lake.snapshot
        command = [sys.executable, "-m", "bench.commit_worker", url]
        workers = [
            subprocess.Popen(
                [*command, name, str(SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in names
        ]
        try:
            counts = _race(workers)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        done, conflicts = (sum(column) for column in zip(*counts, strict=True))
        assert lake.snapshot - before == done
    return done, conflicts


def _race(workers: list[subprocess.Popen[str]]) -> list[list[int]]:
    """Let all of them go at once, when the last has its lake open; commits and conflicts."""
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    return [[int(n) for n in worker.communicate()[0].split()] for worker in workers]
