"""`python -m bench [--scale S] [--list] [NAME…]`: measure, and print one table."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

from bench import (
    changed_tables,
    changes,
    choice,
    commits,
    freshness,
    indexes,
    iterations,
    local_append,
    local_upsert,
    maintenance,
    merge,
    report,
    scan,
    small,
    spark_append,
    views,
    wake_up,
)
from bench.bench import Bench

# In the order of the table.
MEASUREMENTS = (
    scan,
    spark_append,
    local_append,
    local_upsert,
    maintenance,
    merge,
    changes,
    changed_tables,
    commits,
    small,
    wake_up,
    iterations,
    freshness,
    views,
    indexes,
)


def main() -> None:
    known = {module.__name__.removeprefix("bench."): module for module in MEASUREMENTS}
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; default: all")
    parser.add_argument(
        "--scale",
        type=choice.scales,
        help="a fraction of the full sizes; for views, the scales of TPC-H (default: 1,3)",
    )
    parser.add_argument("--list", action="store_true", help="show the names and end")
    choice.add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.list:
        for name, module in known.items():
            print(f"{name:15} {(module.__doc__ or '').partition(chr(10))[0]}")
        return
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}: --list shows the names")
    # Ended from outside, the run still stops its servers and deletes its directory.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    scale = arguments.scale[0] if arguments.scale else 1.0
    parts = choice.chosen(arguments)
    print(_run([known[name] for name in arguments.names or known], scale, parts))


def _run(modules: list[ModuleType], scale: float, parts: choice.Choice) -> str:
    rows: list[report.Row] = []
    load = os.getloadavg()[0]
    start = time.monotonic()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-bench-")))
        bench = Bench(home, scale=scale, choice=parts, stack=stack)
        for module in modules:
            _say(start, module.__name__.removeprefix("bench."))
            for row in module.measure(bench):
                _say(start, "  " + " | ".join(cell for cell in row.cells if cell))
                rows.append(row)
    minutes = (time.monotonic() - start) / 60
    note = f"{os.cpu_count()} cores, load {load:.1f} before the run, {minutes:.1f} minutes."
    if scale != 1:
        note += f" Sizes at {scale:g} of what the targets are meant for."
    return f"{report.table(rows)}\n\n{note}"


def _say(start: float, text: str) -> None:
    print(f"{time.monotonic() - start:6.0f} s  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
