"""What the database and its driver raise comes out as one of our errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.lakes import LakeArgs


def test_whatever_the_catalog_raises_is_translated(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake:
        database = lake.runtime.database

        def read(statement: Any) -> Callable[[], object]:
            def run() -> object:
                with database.read() as connection:
                    return connection.execute(statement).all()

            return run

        def write(statement: Any) -> Callable[[], object]:
            def run() -> object:
                with database.write() as connection:
                    return connection.execute(statement)

            return run

        names = sa.select(dl.schema.c.schema_name)
        numbers = sa.select(dl.snapshot.c.snapshot_id)
        twice = sa.insert(dl.snapshot).values(snapshot_id=0, snapshot_time=lake.snapshots()[0].time)
        cases: list[tuple[Callable[[], object], type[Exception]]] = [
            (read(names.where(dl.schema.c.schema_name == "\ud800")), tailrace.InvalidError),
            (read(names.where(dl.schema.c.schema_name == object())), tailrace.InvalidError),
            (read(numbers.where(dl.snapshot.c.snapshot_id == 2**63)), tailrace.InvalidError),
            (read(sa.text("SELECT * FROM no_such_table")), tailrace.CorruptError),
            (write(twice), tailrace.ConflictError),
        ]
        if not database.is_sqlite:  # SQLite takes both
            cases += [
                (read(names.where(dl.schema.c.schema_name == "a\0b")), tailrace.InvalidError),
                (read(numbers.where(dl.snapshot.c.snapshot_id == "x")), tailrace.InvalidError),
            ]
            cases[2] = (read(sa.text("SELECT CAST('1e30' AS bigint)")), tailrace.InvalidError)
        for call, expected in cases:
            with pytest.raises(tailrace.TailraceError) as caught:
                call()
            assert type(caught.value) is expected, caught.value
            assert len(str(caught.value).splitlines()) == 1
        assert lake.snapshot == 0
