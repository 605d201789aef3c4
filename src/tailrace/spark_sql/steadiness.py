"""Which functions of Spark give the same value for the same row, whenever they are asked.

One list for all that is derived and kept: views, replicas, searches with a condition. What Spark
itself calls non-deterministic is in `CHANCE` (a test compares it with Spark's registry);
`MOMENT` and `SESSION` are steady for one query of Spark, and for no longer.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

# Of chance, of where rows lie, and of what happens outside of Spark.
CHANCE = frozenset({
    "rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "aes_encrypt",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name",
    "input_file_block_start", "input_file_block_length", "reflect", "java_method", "try_reflect",
})  # fmt: skip
# Of the time: the day, and the instant.
DAY = frozenset({"current_date", "curdate"})
INSTANT = frozenset({"current_timestamp", "now", "localtimestamp", "unix_timestamp"})
MOMENT = DAY | INSTANT | {"current_time", "localtime"}
# Of who asks, and how.
SESSION = frozenset({
    "current_user", "session_user", "user", "current_database", "current_schema",
    "current_catalog", "current_path", "current_timezone",
})  # fmt: skip
# What Spark makes a day or an instant of, when a query writes it as one.
_MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})


def called(call: exp.Func) -> str:
    """The name of a function, as Spark knows it."""
    name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
    return str(name).lower()


def is_moment(call: exp.Func) -> bool:
    """Whether a function is one of the time; `unix_timestamp` is so only without an argument."""
    return called(call) in MOMENT and not (
        called(call) == "unix_timestamp" and (call.expressions or call.args.get("this"))
    )


def unsteady(tree: exp.Expr) -> Iterator[str]:
    """What of an expression may give something else each time: functions, as in `rand()`."""
    for call in tree.find_all(exp.Func):
        if isinstance(call, exp.Cast):
            text = call.this
            moment = isinstance(text, exp.Literal) and text.this.strip().lower() in _MOMENTS
            if moment and call.to.is_type("date", *exp.DataType.TEMPORAL_TYPES):
                yield repr(text.this)
        elif called(call) in CHANCE | SESSION or is_moment(call):
            yield f"{called(call)}()"
