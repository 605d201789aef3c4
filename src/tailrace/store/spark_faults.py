"""Faults that Spark reports in its own words, told as ours.

An error raised in a Spark worker comes to the driver as text inside of another error, and so does
an object that Spark's own reader could not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace import errors

_UNREADABLE = re.compile(
    # The latter at once, or with Connect not before the rows are asked for.
    r"FAILED_READ_FILE\S* Encountered error while reading file (\S+?)\.?\s"
    r"|PATH_NOT_FOUND\S* Path does not exist: (\S+?)\.?\s"
)
_OURS = re.compile(r"^tailrace\.errors\.(\w+Error): (.*)$", re.MULTILINE)


@contextmanager
def spark_faults() -> Iterator[None]:
    """Around an action of Spark: raise our errors where it failed by one of ours."""
    try:
        yield
    except Exception as error:
        ours = _translate(error)
        if ours is None:
            raise
        raise ours from error


def is_sparks(error: Exception) -> bool:
    """Whether Spark, or the way to it, has raised an error."""
    # By name, because a session may be classic or Connect, and either may be missing.
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _translate(error: Exception) -> errors.TailraceError | None:
    if not is_sparks(error):
        return None
    text = str(error)
    if found := _OURS.search(text):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, errors.TailraceError):
            return kind(found[2])
    if found := _UNREADABLE.search(text):
        return errors.CorruptError(f"the object {found[1] or found[2]} is missing or damaged")
    return None
