"""Statements that are executed together do what they do one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog.database import Together
from tailrace.store import tables as t

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailrace.catalog.database import Database
    from tests.support.lakes import LakeArgs

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
C = t.transaction.c
INSERT = sa.insert(t.transaction)
# A parameter may not be called as a column.
MOVE = (
    sa.update(t.transaction)
    .where(C.txn_id == sa.bindparam("which"))
    .values(base_snapshot=C.base_snapshot + sa.bindparam("more"))
)
DELETE = sa.delete(t.transaction).where(C.txn_id.in_(sa.bindparam("ids", expanding=True)))


@pytest.fixture
def database(lake_args: LakeArgs) -> Iterator[Database]:
    with lake_args.connect() as lake:
        yield lake.runtime.database


def row(name: str, number: int = 0) -> dict[str, Any]:
    return {"txn_id": name, "base_snapshot": number, "started_at": NOW, "heartbeat_at": NOW}


def stored(database: Database) -> dict[str, int]:
    with database.read() as connection:
        return {
            one.txn_id: one.base_snapshot for one in connection.execute(sa.select(t.transaction))
        }


def test_values_come_through_as_they_are(database: Database) -> None:
    names = [
        "it's",
        'a "b"',
        "50 %s %% %(x)s",
        "back\\slash\\'",
        "new\nline; DROP TABLE x",
        "ö🦆",
        "",
    ]
    numbers = [0, -1, 2**62, -(2**62), 7, 8, 9]
    late = NOW + timedelta(days=40_000)
    with database.lock() as connection:
        statements = Together(connection)
        for name, number in zip(names, numbers, strict=True):
            statements.later(INSERT, {**row(name, number), "heartbeat_at": late})
        statements.flush()
    assert stored(database) == dict(zip(names, numbers, strict=True))
    with database.read() as connection:
        times = connection.execute(sa.select(C.started_at, C.heartbeat_at).distinct()).all()
    assert times == [(NOW, late)]


@pytest.mark.parametrize("count", [1, 60, 300])
def test_they_are_executed_in_order_and_the_last_gives_its_rows(
    database: Database, count: int
) -> None:
    with database.lock() as connection:
        statements = Together(connection)
        statements.later(INSERT, [row(f"n{number}", number) for number in range(count)])
        for _ in range(count):
            statements.later(MOVE, {"which": "n0", "more": 1})
        statements.later(DELETE, {"ids": ["n0", "none"]})
        statements.later(INSERT, row("n0", 1000))
        statements.later(INSERT, [])  # nothing to do
        moved = statements.execute(MOVE.returning(C.base_snapshot), {"which": "n0", "more": 5})
        assert moved.scalars().all() == [1005]
        assert statements.connection.execute(sa.select(sa.func.count(C.txn_id))).scalar() == count
    assert stored(database) == {f"n{number}": number or 1005 for number in range(count)}


def run(database: Database, *given: tuple[Any, Any, Exception | None]) -> None:
    with database.lock() as connection:
        statements = Together(connection)
        for statement, values, refusal in given:
            statements.later(statement, values, refusal)
        statements.flush()


def test_one_that_finds_nothing_refuses_all(database: Database) -> None:
    run(database, (INSERT, row("there"), None))
    other, refusal = tailrace.ConflictError("not this"), tailrace.ConflictError("it is gone")
    with pytest.raises(tailrace.ConflictError, match="it is gone"):
        run(
            database,
            (MOVE, {"which": "there", "more": 1}, other),
            (INSERT, [row("a"), row("b")], None),
            (MOVE, {"which": "away", "more": 1}, refusal),
            (INSERT, row("c"), None),
        )
    assert stored(database) == {"there": 0}


def test_one_that_fails_leaves_nothing_and_is_translated(database: Database) -> None:
    for name, expected in (("twice", tailrace.ConflictError), ("\ud800", tailrace.InvalidError)):
        with pytest.raises(expected):
            run(database, (INSERT, row("twice"), None), (INSERT, row(name), None))
        assert stored(database) == {}


def test_what_is_never_sent_has_no_effect(database: Database) -> None:
    with database.lock() as connection:
        Together(connection).later(INSERT, row("a"))
    assert stored(database) == {}


def test_many_rows_may_be_the_first_statement(database: Database) -> None:
    with database.lock() as connection:
        connection.execute(INSERT, [row(f"n{number}") for number in range(100)])
    assert len(stored(database)) == 100
