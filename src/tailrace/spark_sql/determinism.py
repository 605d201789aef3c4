"""Which of Spark's functions give the same value for the same row on every call.

One list for all that is derived and kept: views, replicas, searches with a condition. What Spark
itself calls non-deterministic is in `NONDETERMINISTIC` (a test compares it with Spark's registry).
`MOMENT` and `SESSION` keep their value only within one query of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

# They depend on chance, on where rows lie, or on what happens outside of Spark.
NONDETERMINISTIC = frozenset({
    "rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "aes_encrypt",
    "monotonically_increasing_id", "spark_partition_id", "input_file_name",
    "input_file_block_start", "input_file_block_length", "reflect", "java_method", "try_reflect",
})  # fmt: skip
# They depend on the time: on the day, or on the instant.
DAY = frozenset({"current_date", "curdate"})
INSTANT = frozenset({"current_timestamp", "now", "localtimestamp", "unix_timestamp"})
MOMENT = DAY | INSTANT | {"current_time", "localtime"}
# They depend on the session: its user and settings.
SESSION = frozenset({
    "current_user", "session_user", "user", "current_database", "current_schema",
    "current_catalog", "current_path", "current_timezone",
})  # fmt: skip
# Literals that Spark takes for the current day or instant.
_MOMENTS = frozenset({"now", "today", "tomorrow", "yesterday"})


def called(call: exp.Func) -> str:
    """Spark's name of a function."""
    name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
    return str(name).lower()


def is_moment(call: exp.Func) -> bool:
    """Whether a function depends on the time; `unix_timestamp` does only without an argument."""
    return called(call) in MOMENT and not (
        called(call) == "unix_timestamp" and (call.expressions or call.args.get("this"))
    )


def nondeterministic_calls(tree: exp.Expr) -> Iterator[str]:
    """The parts of an expression that may give another value each time, such as `rand()`."""
    for call in tree.find_all(exp.Func):
        if isinstance(call, exp.Cast):
            text = call.this
            moment = isinstance(text, exp.Literal) and text.this.strip().lower() in _MOMENTS
            if moment and call.to.is_type("date", *exp.DataType.TEMPORAL_TYPES):
                yield repr(text.this)
        elif called(call) in NONDETERMINISTIC | SESSION or is_moment(call):
            yield f"{called(call)}()"
