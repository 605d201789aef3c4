"""The parser of Spark SQL, with a count of its steps: `spark_sql` says how many it may take."""

from __future__ import annotations

from sqlglot.dialects.spark import Spark

from tailrace.errors import InvalidError
from tailrace.spark_sql import STEPS


class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
    """Spark's, which gives up."""

    steps_left = STEPS

    def _advance(self, times: int = 1) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise InvalidError(
                f"this text takes too long to read, more than {STEPS:,} steps: write joins with "
                "their conditions, and fewer calls inside each other"
            )
        super()._advance(times)
