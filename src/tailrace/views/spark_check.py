"""Whether Spark can read a view's query, before anything is built."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from tailrace.errors import InvalidError
from tailrace.views.definition import Definition
from tailrace.views.query.parse import with_tables
from tailrace.views.reader import shown_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_with_spark(session: Any, definition: Definition) -> None:
    """Let Spark read a query over empty tables of the right types."""
    from pyspark.errors import AnalysisException

    from tailrace.store.spark_faults import spark_faults

    prefix = f"tailrace_check_{secrets.token_hex(4)}_"
    names: list[str] = []
    try:
        with spark_faults():
            _empty(session, definition, prefix, names).schema  # noqa: B018  (reading it is the check)
    except AnalysisException as error:
        first = str(error).partition(";")[0].partition("\n")[0]
        raise InvalidError(f"Spark cannot read the query: {first}") from error
    finally:
        for name in names:
            session.catalog.dropTempView(name)


def _empty(session: Any, definition: Definition, prefix: str, names: list[str]) -> DataFrame:
    """A query over empty tables; adds their names to `names`."""
    from tailrace.spark_sql.types import spark_schema

    own: dict[str, str] = {}
    for key, given in definition.inputs.items():
        if given.view is not None:
            frame = _empty(session, given.view.definition, prefix, names)
            shown = shown_names(given.view.definition) or frame.columns
            frame = frame.toDF(*shown)
        else:
            assert given.table is not None
            frame = session.createDataFrame([], spark_schema(given.table.arrow_schema))
        own[key] = f"{prefix}{len(names)}"
        names.append(own[key])
        frame.createOrReplaceTempView(own[key])
    read: DataFrame = session.sql(with_tables(definition.tree, lambda key: own[key]).sql("spark"))
    return read
