"""Full-text indexes: strings, cut into words, scored by BM25."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.indexes.kind import IndexKind, Options, flag, number, one_of
from tailrace.spark_sql.types import spark_type
from tailrace.store.schema import Column, TableInfo

if TYPE_CHECKING:
    from tailrace.indexes.definition import Definition
    from tailrace.indexes.index_snapshot import IndexSnapshot
    from tailrace.indexes.kind import Hidden
    from tailrace.indexes.text.files import TextWriter
    from tailrace.indexes.text.searcher import OpenText, TextSearcher

TOKENIZERS = ("default", "simple", "ngram")
# Those that tantivy can reduce words to their stems in.
LANGUAGES = (
    *("arabic", "danish", "dutch", "english", "finnish", "french", "german", "greek"),
    *("hungarian", "italian", "norwegian", "portuguese", "romanian", "russian", "spanish"),
    *("swedish", "tamil", "turkish"),
)
_HEAVIEST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class TextOptions(Options):
    """How text becomes words, and what is stored of them."""

    tokenizer: str = "default"
    language: str = "english"
    weights: tuple[float, ...] = ()  # one a column
    positions: bool = True  # whether phrases can be searched for


class FullText(IndexKind):
    """On tantivy."""

    name = "fulltext"
    options_type = TextOptions
    query_type, query_name, query_example = "string", "query", "'late delivery'"
    has_highlights = True

    @property
    def format(self) -> str:
        from tailrace.indexes.text.files import FORMAT

        return FORMAT

    def check_installed(self) -> None:
        import tailrace.indexes.text.files  # noqa: F401

    def define(self, table: TableInfo, columns: list[Column], given: dict[str, Any]) -> TextOptions:
        for column in columns:
            if not pa.types.is_string(column.type):
                raise InvalidError(
                    f"{table.full_name}.{column.name} is {spark_type(column.type)}: "
                    "a full-text index needs strings"
                )
        tokenizer = one_of("tokenizer", given.pop("tokenizer", "default"), TOKENIZERS)
        has_language = "language" in given
        language = one_of("language", given.pop("language", "english"), LANGUAGES)
        if has_language and tokenizer != "default":
            raise InvalidError(f"the tokenizer {show(tokenizer)} has no language: leave it out")
        return TextOptions(
            tokenizer=tokenizer,
            language=language,
            weights=_weights(columns, given.pop("weights", None)),
            positions=flag("positions", given.pop("positions", True)),
        )

    def writer(
        self,
        definition: Definition,
        directory: Path,
        *,
        small: bool,
        centroids: Any | None,  # noqa: ARG002
    ) -> TextWriter:
        from tailrace.indexes.text.files import TextWriter

        inside = directory / "tantivy"
        inside.mkdir()
        return TextWriter(definition, inside, small=small)

    def open(
        self,
        definition: Definition,  # noqa: ARG002
        directory: Path,
        temporary: Callable[[], Path],
        centroids: tuple[int, Any] | None,  # noqa: ARG002
    ) -> OpenText:
        from tailrace.indexes.text.searcher import OpenText

        return OpenText(directory, temporary())

    def searcher(
        self,
        snapshot: IndexSnapshot,
        segments: Sequence[tuple[OpenText, Hidden]],
        temporary: Callable[[], Path],
    ) -> TextSearcher:
        from tailrace.indexes.text.searcher import TextSearcher

        names = [column.name for column in snapshot.definition.columns_of(snapshot.table)]
        return TextSearcher(snapshot.definition, names, segments, temporary)


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
    weights = tuple(number("a weight", weight) for weight in given)
    if not all(0 < weight <= _HEAVIEST for weight in weights):
        raise InvalidError(f"weights are numbers above 0, and up to {_HEAVIEST:,}")
    return weights
