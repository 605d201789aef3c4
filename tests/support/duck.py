"""DuckDB as an independent reader of our lakes.

Read-only always: Python's sqlite3 in WAL mode and a DuckDB attached read-write to the same file,
both in one process, split the catalog in two.
"""

from __future__ import annotations

import functools
import tempfile
from typing import TYPE_CHECKING, Any

import duckdb

from tailrace.spark_sql.duckdb.engine import without_shared_plans

if TYPE_CHECKING:
    import pyarrow as pa

    from tests.support.lakes import LakeArgs
    from tests.support.s3 import S3Bucket

SCANNERS = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner"}


def attach(lake: LakeArgs, *, s3: S3Bucket | None = None) -> duckdb.DuckDBPyConnection:
    """A new DuckDB that has the lake attached as `lake`; the caller closes it.

    With `s3`, it also reads a lake whose objects are in that bucket.
    """
    connection = connect(lake, s3=s3)
    try:
        connection.execute(f"ATTACH {_text(address(lake))} AS lake (READ_ONLY)")
    except BaseException:
        connection.close()
        raise
    return connection


def connect(lake: LakeArgs, *, s3: S3Bucket | None = None) -> duckdb.DuckDBPyConnection:
    """A new DuckDB with all that it takes to attach the lake."""
    connection = with_extensions("ducklake", SCANNERS[lake.catalog], *(("httpfs",) if s3 else ()))
    without_shared_plans(connection)
    connection.execute("SET TimeZone = 'UTC'")
    if s3:
        _use_bucket(connection, s3)
    return connection


def with_extensions(*names: str) -> duckdb.DuckDBPyConnection:
    """A new DuckDB with extensions that are installed as packages; the caller closes it."""
    from duckdb_extensions import import_extension

    connection = duckdb.connect(config=_settings())
    for name in names:
        import_extension(name, con=connection)
        connection.load_extension(name)
    return connection


def read(connection: duckdb.DuckDBPyConnection, table: str, at: int | None = None) -> pa.Table:
    """The rows of a table (`name` or `schema.name`), now or at a snapshot."""
    schema, _, name = table.rpartition(".")
    return read_table(connection, schema or "main", name, at)


def read_table(
    connection: duckdb.DuckDBPyConnection, schema: str, name: str, at: int | None = None
) -> pa.Table:
    """The rows of a table whose names may hold any character, now or at a snapshot."""
    version = f" AT (VERSION => {int(at)})" if at is not None else ""
    query = f"SELECT * FROM lake.{_name(schema)}.{_name(name)}{version}"
    return connection.execute(query).to_arrow_table()


def address(lake: LakeArgs) -> str:
    """The lake in the words of `ATTACH`."""
    if lake.catalog == "sqlite":
        return f"ducklake:sqlite:{lake.catalog_file}"
    return f"ducklake:postgres:{lake.conninfo}"


@functools.cache
def _extension_directory() -> tempfile.TemporaryDirectory[str]:
    # One for the process, removed at its end: nothing is left in the user's home.
    return tempfile.TemporaryDirectory(prefix="tailrace-duckdb-")


def _settings() -> dict[str, Any]:
    return {
        "autoinstall_known_extensions": False,  # what a test reads with comes from the lock
        "autoload_known_extensions": False,
        "extension_directory": _extension_directory().name,
    }


def _use_bucket(connection: duckdb.DuckDBPyConnection, s3: S3Bucket) -> None:
    connection.execute(
        f"""
        CREATE SECRET (
            TYPE s3, SCOPE {_text(s3.url())}, URL_STYLE 'path', USE_SSL false,
            ENDPOINT {_text(s3.endpoint.removeprefix("http://"))}, REGION {_text(s3.region)},
            KEY_ID {_text(s3.access_key)}, SECRET {_text(s3.secret_key)}
        )
        """
    )


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
