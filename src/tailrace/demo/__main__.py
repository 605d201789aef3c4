"""`python -m tailrace.demo`, which is what `make demo` runs."""

from __future__ import annotations

import argparse
import sys

from tailrace.demo import run
from tailrace.errors import InvalidError, TailraceError


def main() -> int:
    """Run the demo with the options of the command line."""
    parser = argparse.ArgumentParser(prog="tailrace demo", description="See Tailrace work.")
    parser.add_argument("--seconds", type=float, default=60.0, help="of live changes")
    parser.add_argument("--scale", type=float, default=1.0, help="1 is 50,000 orders")
    parser.add_argument("--keep", metavar="DIR", help="keep the lake here, or go on with it")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    given = parser.parse_args()
    try:
        return run(seconds=given.seconds, scale=given.scale, keep=given.keep, output=given.output)
    except TailraceError as error:
        print(f"tailrace demo: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidError) else 1


if __name__ == "__main__":
    sys.exit(main())
