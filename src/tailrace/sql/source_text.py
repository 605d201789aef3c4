"""What the user wrote, which errors quote even if another text is run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tailrace.errors import InvalidError
from tailrace.sql.diagnostics import Span, error_at
from tailrace.store import spark_faults as store_faults


@dataclass(frozen=True, kw_only=True)
class SourceText:
    """A script. The query that is run is a part of it, or put together from parts."""

    text: str
    offset: int | None = None  # where the query begins; None if it was put together

    def error_at(
        self, sql: str, span: Span, message: str, *, valid: Iterable[str] = (), hint: str = ""
    ) -> InvalidError:
        """An error at the place of a piece of the query."""
        if self.offset is not None:
            place = Span(start=span.start + self.offset, end=span.end + self.offset)
            return error_at(self.text, place, message, valid=valid, hint=hint)
        return self.error_at_fragment(sql[span.start : span.end], message, valid=valid, hint=hint)

    def error_at_fragment(
        self, fragment: str, message: str, *, valid: Iterable[str] = (), hint: str = ""
    ) -> InvalidError:
        """An error at the place of a fragment, if that occurs just once."""
        if not fragment or self.text.count(fragment) != 1:
            options = f" (valid: {', '.join(valid)})" if valid else ""
            return InvalidError("\n".join(filter(None, [f"{message}{options}", hint])))
        start = self.text.index(fragment)
        return error_at(
            self.text, Span(start=start, end=start + len(fragment)), message, valid=valid, hint=hint
        )

    @contextmanager
    def spark_faults(self) -> Iterator[None]:
        """Turn what Spark reports about the query into an InvalidError at its place."""
        from pyspark.errors import PySparkException

        try:
            with store_faults.spark_faults():
                yield
        except PySparkException as error:
            raise self.error_at_fragment(_fragment(error), _reason(error)) from error


def _fragment(error: Any) -> str:
    """The piece of the query that Spark complains about; empty if it names none."""
    try:
        contexts = error.getQueryContext()
        return str(contexts[0].fragment()) if contexts else ""
    except Exception:  # noqa: BLE001  (not all of Spark's errors know their place)
        return ""


def _reason(error: Any) -> str:
    """Spark's own message, without its codes and the plan."""
    first = str(error).strip().split("SQLSTATE")[0].split("\n")[0].strip()
    if first.startswith("["):
        first = first.partition("]")[2].strip() or first
    return first.rstrip(" ;")
