"""sqlglot's parser of Spark SQL, with a limit on its steps that `spark_sql` sets."""

from __future__ import annotations

from sqlglot.dialects.spark import Spark

from tailrace.errors import InvalidError


class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
    """Spark's parser, which gives up after `most_steps`."""

    steps = 0
    most_steps = 0

    def _advance(self, times: int = 1) -> None:
        self.steps += 1
        if self.steps > self.most_steps:
            raise InvalidError(
                f"this text takes too long to read, more than {self.most_steps:,} steps: write "
                "joins with their conditions, and fewer calls inside each other"
            )
        super()._advance(times)
