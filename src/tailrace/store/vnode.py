"""Vnodes: the 256 hash slots of a table's key, in which work on a table can be cut and spread.

A row's vnode is computed where it is needed and stored nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.errors import InvalidError
from tailrace.spark_sql import types
from tailrace.store.schema import TableInfo

if TYPE_CHECKING:
    from pyspark.sql import Column

VNODES = 256


def vnode(table: TableInfo) -> Column:
    """The vnode of a row of a table, under the names of its columns."""
    from pyspark.sql import functions as F

    if not table.key:
        raise InvalidError(f"{table.full_name} has no primary key, and so no vnodes")
    key = [F.col(types.quote(column.name)) for column in table.key_columns]
    return F.pmod(F.xxhash64(*key), F.lit(VNODES)).cast("int")
