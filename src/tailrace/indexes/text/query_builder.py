"""Builds tantivy's queries from what users search for."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tantivy

from tailrace.errors import InvalidError
from tailrace.indexes.definition import Definition
from tailrace.indexes.text.query import Group, Occurs, Words, parse
from tailrace.indexes.text.schema import field_of, make_analyzer, make_schema

_OCCURS = {
    Occurs.SHOULD: tantivy.Occur.Should,
    Occurs.MUST: tantivy.Occur.Must,
    Occurs.MUST_NOT: tantivy.Occur.MustNot,
}


class QueryBuilder:
    """Builds tantivy's queries for one index."""

    def __init__(self, definition: Definition, names: Sequence[str]) -> None:
        """`names` are the index's columns as they are called now."""
        self._definition = definition
        self.schema = make_schema(definition)
        self._words = make_analyzer(definition)
        self._plain = make_analyzer(definition, stems=False)
        self._columns = {
            name.casefold(): (field_of(number), weight)
            for name, number, weight in zip(
                names, definition.columns, definition.options.weights, strict=True
            )
        }

    def build(self, text: object) -> tantivy.Query:
        """Tantivy's query for what a user searches for."""
        query = self._group(parse(text))
        if query is None:
            raise InvalidError(f"the query {text!r} has no word to search for")
        return query

    def _group(self, group: Group) -> tantivy.Query | None:
        clauses = []
        for occurs, inner in group.clauses:
            query = self._group(inner) if isinstance(inner, Group) else self._any_column(inner)
            if query is None and occurs is Occurs.MUST:
                query = tantivy.Query.empty_query()  # a word that no text can have
            if query is not None:
                clauses.append((_OCCURS[occurs], query))
        if not any(occurs is not tantivy.Occur.MustNot for occurs, _ in clauses):
            return None
        return tantivy.Query.boolean_query(clauses)

    def _any_column(self, words: Words) -> tantivy.Query | None:
        columns = list(self._columns.values())
        if words.column is not None:
            if words.column.casefold() not in self._columns:
                known = ", ".join(self._columns)
                raise InvalidError(
                    f"the index has no column {words.column!r}; it has {known}. To search for a "
                    f'colon, quote it: "{words.column}:{words.text}"'
                )
            columns = [self._columns[words.column.casefold()]]
        queries = []
        for field, weight in columns:
            query = self._in_field(words, field)
            if query is not None:
                boosted = query if weight == 1 else tantivy.Query.boost_query(query, weight)
                queries.append(boosted)
        return _any_of(queries) if queries else None

    def _in_field(self, words: Words, field: str) -> tantivy.Query | None:
        if words.is_prefix:
            return self._prefix(words, field)
        tokens = self._words.analyze(words.text)
        if not tokens:
            return None
        if words.distance:
            return self._fuzzy(words, field)
        if len(tokens) == 1:
            return self._term(field, tokens[0])
        if self._definition.options.positions:
            return tantivy.Query.phrase_query(self.schema, field, list(tokens), slop=words.slop)
        if words.is_phrase:
            raise InvalidError("this index was made without positions: it finds no phrases")
        return _all_of([self._term(field, token) for token in tokens])

    def _fuzzy(self, words: Words, field: str) -> tantivy.Query:
        """Words like these, or like their stems: of similar words, the index has the stems."""
        forms = [self._words.analyze(words.text), self._plain.analyze(words.text)]
        queries = []
        for tokens in dict.fromkeys(map(tuple, forms)):
            near = [
                tantivy.Query.fuzzy_term_query(self.schema, field, token, distance=words.distance)
                for token in tokens
            ]
            queries.append(_all_of(near))
        return _any_of(queries)

    def _term(self, field: str, token: str) -> tantivy.Query:
        option = "position" if self._definition.options.positions else "freq"
        return tantivy.Query.term_query(self.schema, field, token, index_option=option)

    def _prefix(self, words: Words, field: str) -> tantivy.Query | None:
        tokens = self._plain.analyze(words.text)
        if not tokens:
            return None
        before = self._words.analyze(words.text)[:-1]  # the index has their stems
        pattern = f"{_literally(tokens[-1])}.*"
        if before and self._definition.options.positions:
            return tantivy.Query.regex_phrase_query(
                self.schema, field, [*map(_literally, before), pattern]
            )
        prefix = tantivy.Query.regex_query(self.schema, field, pattern)
        return _all_of([*(self._term(field, token) for token in before), prefix])


def _all_of(queries: list[tantivy.Query]) -> tantivy.Query:
    return _combined(tantivy.Occur.Must, queries)


def _any_of(queries: list[tantivy.Query]) -> tantivy.Query:
    return _combined(tantivy.Occur.Should, queries)


def _combined(occur: tantivy.Occur, queries: list[tantivy.Query]) -> tantivy.Query:
    if len(queries) == 1:
        return queries[0]
    return tantivy.Query.boolean_query([(occur, query) for query in queries])


def _literally(word: str) -> str:
    """A word as a pattern that matches it alone."""
    return re.sub(r"([][.*+?^${}()|\\&~#-])", r"\\\1", word)
