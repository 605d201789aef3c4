"""The writer's process, as the demo holds it: started, listened to, stopped.

Always true: the writer stops when this process is gone, because it ends with its input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.demo.shop import CUSTOMERS, ORDERS, PRODUCTS, REVIEWS, STATUSES
from tailrace.demo.writer import Commit, Start
from tailrace.errors import UnavailableError

if TYPE_CHECKING:
    from tailrace.lake import Lake

_SEED = 8708
_PATIENCE = 20.0  # seconds to finish a commit
_UNDER_WAY = 1_000  # orders, and reviews, that it gets to know: enough to pick from


def start_from(lake: Lake) -> Start:
    """Where the writer begins, whoever wrote to the shop before."""
    from pyspark.sql import functions as F

    orders = lake.table(ORDERS).to_df()
    customers = lake.table(CUSTOMERS).to_df()
    under_way = orders.where(F.col("status") != STATUSES[-1])
    some = under_way.orderBy(F.desc("id")).limit(_UNDER_WAY).toArrow().to_pylist()
    reviews = lake.table(REVIEWS).to_df().select("id", "product_id").orderBy(F.desc("id"))
    said = [[row["id"], row["product_id"]] for row in reviews.limit(_UNDER_WAY).collect()]
    products = lake.table(PRODUCTS).to_arrow().sort_by("id").to_pylist()
    return Start(
        seed=_SEED + lake.snapshot,  # when the demo goes on, something else happens
        newest_order=orders.agg(F.max("id")).collect()[0][0] or 0,
        newest_customer=customers.agg(F.max("id")).collect()[0][0] or 0,
        newest_review=said[0][0] if said else 0,
        orders=[[o["id"], o["customer_id"], o["status"], o["placed_at"].isoformat()] for o in some],
        products=[[p["id"], p["name"], p["category"], str(p["price"])] for p in products],
        reviews=said,
    )


class Child:
    """Started early, so that it is ready by the time it is told where to begin."""

    def __init__(self, place: Path, *, rate: float) -> None:
        command = [sys.executable, "-m", "tailrace.demo.writer", str(place), str(rate)]
        self._process = subprocess.Popen(  # noqa: S603  (our own module)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        self.commits: list[Commit] = []  # oldest first; only ever grows
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def begin(self, start: Start) -> None:
        """Let it write."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(start)) + "\n")
            self._process.stdin.flush()
        except OSError:
            self.check()
            raise

    def check(self) -> None:
        """Raise if it has ended by itself."""
        status = self._process.poll()
        if status is not None:
            raise UnavailableError(
                f"the process that writes to the shop ended with status {status}"
            )

    def stop(self) -> None:
        """Let it finish what it is doing, and wait for that."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_PATIENCE)
        self.end()

    def end(self) -> None:
        """End it at once, unless it has ended; may be called at any time."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # it was killed half-way through a line
            told = json.loads(line)
            self.commits.append(Commit(**{**told, "tables": tuple(told["tables"])}))
