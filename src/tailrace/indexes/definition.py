"""What an index is: its kind, columns and options, checked once and then stored with its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.spark_sql.types import spark_type
from tailrace.store.schema import Column, TableInfo

FULLTEXT, VECTOR = "fulltext", "vector"
KINDS = (FULLTEXT, VECTOR)
COSINE, INNER_PRODUCT, L2 = "cosine", "inner_product", "l2"
METRICS = (COSINE, INNER_PRODUCT, L2)
TOKENIZERS = ("default", "simple", "ngram")
# Those that tantivy can reduce words to their stems in.
LANGUAGES = (
    *("arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek"),
    *("hungarian", "italian", "norwegian", "portuguese", "romanian", "russian", "spanish"),
    *("swedish", "tamil", "turkish"),
)
_DIMENSIONS, _HEAVIEST = 65_536, 1_000_000


@dataclass(frozen=True, kw_only=True)
class Definition:
    """An index, as its job's spec stores it."""

    kind: str
    columns: tuple[int, ...]  # ids: a column may be renamed
    # Of a full-text index.
    tokenizer: str = "default"
    language: str = "english"
    weights: tuple[float, ...] = ()  # one a column
    positions: bool = True  # whether phrases can be searched for
    # Of a vector index.
    metric: str = COSINE
    dimension: int = 0
    recall: float = 0.95

    def columns_of(self, table: TableInfo) -> list[Column]:
        """Its columns as they are called now."""
        by_id = {column.id: column for column in table.columns}
        if any(number not in by_id for number in self.columns):
            raise InvalidError(
                f"{table.full_name} no longer has a column of this index: drop the index"
            )
        return [by_id[number] for number in self.columns]

    def to_options(self) -> dict[str, Any]:
        """As the spec of the index's job has it."""
        both = {"kind": self.kind, "column_ids": list(self.columns)}
        if self.kind == FULLTEXT:
            return both | {
                "tokenizer": self.tokenizer,
                "language": self.language,
                "weights": list(self.weights),
                "positions": self.positions,
            }
        return both | {"metric": self.metric, "dimension": self.dimension, "recall": self.recall}

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> Definition:
        """The opposite."""
        known = {k: v for k, v in options.items() if k not in ("kind", "column_ids", "weights")}
        return Definition(
            kind=options["kind"],
            columns=tuple(options["column_ids"]),
            weights=tuple(options.get("weights", ())),
            **known,
        )


def define(
    table: TableInfo, using: object, columns: object, options: Mapping[str, Any] | None
) -> Definition:
    """A new index out of what a user says; `dimension` 0 has to be found out."""
    kind = using.casefold() if isinstance(using, str) else using
    if kind not in KINDS:
        raise InvalidError(f"an index is using={FULLTEXT!r} or {VECTOR!r}, not {show(using)}")
    names = [columns] if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not names or not all(isinstance(n, str) for n in names):
        raise InvalidError('an index needs columns: columns=["note"]')
    found = [table.column(name) for name in names]
    if len({column.id for column in found}) != len(found):
        raise InvalidError("an index names a column twice")
    given = {str(name).casefold(): value for name, value in (options or {}).items()}
    made = (_fulltext if kind == FULLTEXT else _vector)(table, found, given)
    if given:
        raise InvalidError(f"a {kind} index has no option {sorted(given)[0]!r}")
    return made


def _fulltext(table: TableInfo, columns: list[Column], given: dict[str, Any]) -> Definition:
    for column in columns:
        if not pa.types.is_string(column.type):
            raise InvalidError(
                f"{table.full_name}.{column.name} is {spark_type(column.type)}: "
                "a full-text index needs strings"
            )
    tokenizer = _one_of("tokenizer", given.pop("tokenizer", "default"), TOKENIZERS)
    has_language = "language" in given
    language = _one_of("language", given.pop("language", "english"), LANGUAGES)
    if has_language and tokenizer != "default":
        raise InvalidError(f"the tokenizer {show(tokenizer)} has no language: leave it out")
    return Definition(
        kind=FULLTEXT,
        columns=tuple(column.id for column in columns),
        tokenizer=tokenizer,
        language=language,
        weights=_weights(columns, given.pop("weights", None)),
        positions=_flag("positions", given.pop("positions", True)),
    )


def _vector(table: TableInfo, columns: list[Column], given: dict[str, Any]) -> Definition:
    if len(columns) != 1:
        raise InvalidError("a vector index is of one column")
    (column,) = columns
    inner = column.type.value_type if pa.types.is_list(column.type) else None
    if inner not in (pa.float32(), pa.float64()):
        raise InvalidError(
            f"{table.full_name}.{column.name} is {spark_type(column.type)}: "
            "a vector index needs array<float>"
        )
    metric = given.pop("metric", COSINE)
    if isinstance(metric, str) and metric.casefold() in ("ip", "dot", "inner product"):
        metric = INNER_PRODUCT
    dimension = _number("dimension", given.pop("dimension", column.dimension or 0))
    if not 0 <= dimension <= _DIMENSIONS or dimension != int(dimension):
        raise InvalidError(f"a dimension is a whole number up to {_DIMENSIONS}, not {dimension!r}")
    if column.dimension not in (None, int(dimension)):
        raise InvalidError(
            f"{table.full_name}.{column.name} has another index, of dimension {column.dimension}"
        )
    recall = _number("recall", given.pop("recall", 0.95))
    if not 0.5 <= recall <= 1:
        raise InvalidError(f"a recall is a share between 0.5 and 1, not {recall!r}")
    return Definition(
        kind=VECTOR,
        columns=(column.id,),
        metric=_one_of("metric", metric, METRICS),
        dimension=int(dimension),
        recall=recall,
    )


def _one_of(name: str, value: object, known: Sequence[str]) -> str:
    found = value.casefold() if isinstance(value, str) else None
    if found not in known:
        raise InvalidError(f"{name} is one of {', '.join(known)}, not {show(value)}")
    return str(found)


def _flag(name: str, value: object) -> bool:
    if isinstance(value, str) and value.casefold() in ("true", "false"):
        return value.casefold() == "true"
    if not isinstance(value, bool):
        raise InvalidError(f"{name} is true or false, not {show(value)}")
    return value


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError  # noqa: TRY301  (as of anything else that is no number)
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InvalidError(f"{name} is a number, not {show(value)}") from None


def _weights(columns: list[Column], given: object) -> tuple[float, ...]:
    """As a dict by column, as a list, or, as SQL gives it, as text such as "3, 1"."""
    if given is None:
        return (1.0,) * len(columns)
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",")]
    if isinstance(given, Mapping):
        named = {str(name).casefold(): weight for name, weight in given.items()}
        known = {column.name.casefold() for column in columns}
        unknown = sorted(set(named) - known)
        if unknown:
            raise InvalidError(f"weights name {unknown[0]!r}, which the index does not have")
        given = [named.get(column.name.casefold(), 1.0) for column in columns]
    if not isinstance(given, Sequence) or len(given) != len(columns):
        raise InvalidError("weights are one number a column")
    found = tuple(_number("a weight", weight) for weight in given)
    if not all(0 < weight <= _HEAVIEST for weight in found):
        raise InvalidError(f"weights are numbers above 0, and up to {_HEAVIEST:,}")
    return found
