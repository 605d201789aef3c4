"""A node that has Spark count what changed, as a program of its own.

    python -m tests.support.connect_node LAKE

Its Spark is what the environment says.
"""

from __future__ import annotations

import sys
from typing import Any

import tailrace


@tailrace.consumer("counted_by_spark")
def counted_by_spark(changes: tailrace.Changes, txn: tailrace.Transaction, job: Any) -> None:
    txn.table("seen").append([{"rows": changes.inserts.count()}])


if __name__ == "__main__":
    tailrace.connect(sys.argv[1]).serve(port=0)
