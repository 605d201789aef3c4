"""A table of reviews with an index of each kind, small enough to know by heart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tailrace

COLUMNS = {"id": "bigint", "note": "string", "title": "string", "v": "array<float>"}
ROWS = [
    {"id": 1, "note": "A late delivery, and broken", "title": "Angry", "v": [1.0, 0.0]},
    {"id": 2, "note": "Deliveries early", "title": "late", "v": [0.0, 1.0]},
    {"id": 3, "note": "nothing to say", "title": None, "v": [0.9, 0.1]},
    {"id": 4, "note": None, "title": None, "v": None},
]


def fill(lake: tailrace.Lake) -> tailrace.Table:
    table = lake.create_table("review", COLUMNS, primary_key="id")
    table.append(ROWS)
    return table


def text_index(lake: tailrace.Lake, **options: Any) -> tailrace.Index:
    columns = options.pop("columns", ["note"])
    index = lake.create_index("review", "words", using="fulltext", columns=columns, options=options)
    index.wait()
    return index


def vector_index(lake: tailrace.Lake, **options: Any) -> tailrace.Index:
    index = lake.create_index("review", "near", using="vector", columns=["v"], options=options)
    index.wait()
    return index
