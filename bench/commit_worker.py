"""One of the processes of `bench.commits`: appends until its time is over.

Called with the catalog's URL, a table and a number of seconds; says "ready", waits for a line,
and prints how many commits and how many conflicts there were.
"""

from __future__ import annotations

import sys
import time

import pyarrow as pa

import tailrace


def main() -> None:
    url, name, seconds = sys.argv[1:]
    rows = pa.table({"id": list(range(10)), "note": ["a short note"] * 10})
    with tailrace.connect(url) as lake:
        table = lake.table(name)
        print("ready", flush=True)
        sys.stdin.readline()
        commits = conflicts = 0
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end:
            try:
                table.append(rows)
                commits += 1
            except tailrace.ConflictError:
                conflicts += 1
    print(commits, conflicts)


if __name__ == "__main__":
    main()
