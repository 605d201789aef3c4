"""A Spark session for small plans: a small refresh costs what it costs to start a job.

It shares the context with the user's session, and takes over the settings that decide what a
query means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.store.spark_life import is_classic
from tailrace.store.spark_session import session_beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a query's result depends on.
_MEANING = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.decimalOperations.allowPrecisionLoss",
)
# What translations to DuckDB take for granted about decimals.
_DECIMALS = {
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "true",
}
_SMALL = {
    # Planning again after each stage takes longer than the stages.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    # What comes from memory is small, which Spark cannot know.
    "spark.sql.defaultSizeInBytes": str(4 * 1024 * 1024),
    "spark.sql.autoBroadcastJoinThreshold": str(32 * 1024 * 1024),
    # Several small files are one task.
    "spark.sql.files.openCostInBytes": str(1024 * 1024),
}
# For some ten thousand rows, compiling a stage takes longer than interpreting it.
_TINY = {"spark.sql.codegen.wholeStage": "false"}


def has_known_meaning(session: SparkSession | None) -> bool:
    """Whether a session computes decimals as by default, as one that is started later will."""
    return session is None or all(session.conf.get(k, v) == v for k, v in _DECIMALS.items())


def small_session(session: SparkSession, *, tiny: bool) -> SparkSession:
    """The session for small plans, or for tiny ones, that belongs to a user's session."""
    name, settings = ("tiny", {**_SMALL, **_TINY}) if tiny else ("small", _SMALL)
    beside = session_beside(session, name, settings)
    try:
        _take_over(session, beside)
    except Exception:
        if is_classic(session):
            raise
        # A Connect server forgets a session that nobody has used for an hour.
        beside = session_beside(session, name, settings, anew=True)
        _take_over(session, beside)
    return beside


def _take_over(session: SparkSession, beside: SparkSession) -> None:
    """Let queries mean the same in both sessions."""
    for name in _MEANING:
        meant = session.conf.get(name)
        if meant is not None:
            beside.conf.set(name, meant)
