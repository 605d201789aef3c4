"""What to do about an error, for those who write SQL."""

from __future__ import annotations

import re
from dataclasses import replace

from tailrace.fixes import Action, Fix
from tailrace.spark_sql.types import quote
from tailrace.store.names import split_name

_SQL = {
    Action.LIST_TABLES: "SHOW TABLES lists what there is",
    Action.LIST_VIEWS: "SHOW VIEWS lists what there is",
    Action.LIST_TABLES_AND_VIEWS: "SHOW TABLES and SHOW VIEWS list what there is",
    Action.LIST_INDEXES: "SHOW INDEXES lists what there is",
    Action.LIST_JOBS: "SHOW JOBS shows all",
    Action.CREATE_SCHEMA: "CREATE SCHEMA {name}",
    Action.CREATE_ANOTHER_SCHEMA: (
        "create another with CREATE SCHEMA, and name it before the table"
    ),
    Action.UPSERT: "use MERGE INTO to replace rows",
    Action.READ_VIEW: "SELECT * FROM {name} reads it",
    Action.DROP_VIEW: "use DROP MATERIALIZED VIEW",
    Action.DROP_READERS_FIRST: "drop them first, or all together with CASCADE",
    Action.REPLACE_VIEW: "CREATE OR REPLACE MATERIALIZED VIEW builds it anew",
    Action.CREATE_VIEW_AGAIN: "create it again with CREATE OR REPLACE MATERIALIZED VIEW",
    Action.BUILD_VIEW: "REFRESH MATERIALIZED VIEW {name} builds it",
    Action.RESUME_VIEW: "RESUME JOB {name} first",
    Action.BUILD_INDEX: "REFRESH INDEX {name} ON {of} builds it now",
    Action.LET_INDEX_CATCH_UP: (
        "REFRESH INDEX {name} ON {of} lets it catch up; freshness => 'indexed' takes what it has"
    ),
    Action.SEARCH_LATEST: (
        "freshness => 'latest' searches the table as it is; REFRESH INDEX {name} ON {of} builds "
        "it anew"
    ),
    Action.REBUILD_INDEX: "REFRESH INDEX … FULL makes the index anew",
    Action.GIVE_DIMENSION: "say how long they will be: WITH (dimension = 128)",
    Action.ASK_FOR_OUTCOME: (
        "before trying again, look with SHOW SNAPSHOTS whether its changes are there"
    ),
}


def in_sql(fix: Fix) -> str:
    """A fix as a statement, or as a part of one."""
    return replace(fix, name=_quoted(fix.name), of=_quoted(fix.of)).worded(_SQL)


def _quoted(name: str) -> str:
    """A name with or without a schema, in backticks where it needs them."""
    parts = split_name(name) if "." in name or "`" in name else (name,)
    return ".".join(part if re.fullmatch(r"\w*", part) else quote(part) for part in parts)
