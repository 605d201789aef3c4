"""Programs of views: made once for each kind of change, and shared."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tailrace.store.schema import Column, TableInfo
from tailrace.views.definition import Input, define, table_input
from tailrace.views.incremental.program import Fetch
from tailrace.views.query.trees import shape
from tailrace.views.refresh.programs import Prepared, Programs, names_in_programs

if TYPE_CHECKING:
    from tailrace.views.definition import Definition

KINDS: dict[str, pa.DataType] = {"id": pa.int64(), "a": pa.int64(), "b": pa.int64()}
JOIN = "SELECT t.a, count(u.b) AS total FROM t JOIN u ON u.id = t.a GROUP BY t.a"


def table(name: str) -> TableInfo:
    columns = tuple(
        Column(id=n, name=column, physical=column, type=kind, nullable=column != "id")
        for n, (column, kind) in enumerate(KINDS.items(), 1)
    )
    return TableInfo(
        id=1, uuid=name, schema_id=1, schema="main", name=name, path="", columns=columns, key=(1,)
    )


def find(_schema: str, name: str) -> Input:
    return table_input(table(name))


def stored(definition: Definition) -> tuple[Column, ...]:
    assert definition.layout is not None
    return tuple(
        Column(id=n, name=name, physical=name, type=pa.int64())
        for n, name in enumerate(names_in_programs(definition.layout), 1)
    )


def programs(query: str, changed: tuple[str, ...] = ("main.t",), **given: Any) -> Programs:
    definition = define(query, find)
    known: dict[str, Any] = {
        "stored": stored(definition), "results": {}, "small": True, "refused": ""
    }  # fmt: skip
    return Programs(definition, changed, **(known | given))


def change(query: str, changed: tuple[str, ...] = ("main.t",), **given: Any) -> Prepared:
    prepared = programs(query, changed, **given).change()
    assert prepared is not None
    return prepared


def test_the_same_kind_of_change_has_the_same_program() -> None:
    assert change(JOIN) is change(JOIN)
    assert not change(JOIN).compiled.reason


@pytest.mark.parametrize(
    "other",
    [
        {"changed": ("main.u",)},
        {"changed": ("main.t", "main.u")},
        {"small": False},
        {"stored": None},
        {"results": {"total": "double"}},
        {"refused": "the setting memory_rows is 0"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_another_kind_of_change_has_another_program(other: dict[str, Any]) -> None:
    assert change(JOIN, **other) is not change(JOIN)


def test_a_stored_table_with_other_types_has_another_program() -> None:
    columns = stored(define(JOIN, find))
    wider = tuple(replace(column, type=pa.decimal128(38, 0)) for column in columns)
    assert change(JOIN, stored=wider) is not change(JOIN)


def test_what_is_refused_is_not_compiled() -> None:
    prepared = change(JOIN, refused="the session has its own rules for decimals")
    assert prepared.compiled.reason == "the session has its own rules for decimals"
    assert not prepared.compiled.queries


def test_programs_for_all_rows_and_for_changes_are_not_mixed_up() -> None:
    both = programs("SELECT id, a FROM t WHERE b > 0")
    names = define("SELECT id, a FROM t WHERE b > 0", find).layout
    assert names is not None
    kinds = dict.fromkeys(names.names, pa.int64())
    different = {id(p) for p in (both.change(), both.append(), both.difference(kinds))}
    assert len(different) == 3
    assert both.difference(kinds) is both.difference(kinds)


def test_nothing_is_planned_where_nothing_can_have_changed() -> None:
    assert programs("SELECT t.a FROM t", ("main.u",)).change() is None


def trees(prepared: Prepared) -> list[Any]:
    return [shape(tree) for tree in prepared.program.trees()]


def test_threads_may_use_a_program_at_once() -> None:
    prepared = change(JOIN)
    before, texts = trees(prepared), []

    def use() -> None:
        texts.append([tree.copy().sql("spark") for tree in prepared.program.trees()])
        programs(JOIN, ("main.u",)).change()
        assert change(JOIN) is prepared

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 4
    assert all(text == texts[0] for text in texts)
    assert trees(prepared) == before


BELOW = """
SELECT sum(u.b) AS total FROM u JOIN t ON t.id = u.a
WHERE t.b = 1 AND u.b < (SELECT max(o.b) FROM u o WHERE o.a = t.id)
"""


def all_keys_of(source: str, changed: tuple[str, ...]) -> list[str]:
    """The queries for all keys by which a source can be asked for."""
    steps = change(BELOW, changed).program.steps
    fetches = [step for step in steps if isinstance(step, Fetch) and step.source == source]
    assert fetches
    return [step.among.sql("spark") for step in fetches if step.among is not None]


def test_a_condition_on_another_table_tells_all_keys_that_can_be_asked_for() -> None:
    (query,) = all_keys_of("main.u", ("main.u",))
    assert "new_1" in query
    assert "= 1" in query
    assert "k0" not in query


def test_keys_of_a_table_that_changed_are_not_known_beforehand() -> None:
    assert not all_keys_of("main.u", ("main.t", "main.u"))
