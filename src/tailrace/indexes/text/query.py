"""Parses what users search for in text, and builds tantivy's queries from it.

late delivery            either word, both are better
+late -delivery          the first one must, the second must not be there
late AND (gift OR NOT cheap)
"late delivery"  "late delivery"~2      one after the other; up to two places apart
deliv*                   words that begin so
delivry~1                words that differ in a letter, or in two with ~2
title:late               in one column only
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import tantivy

from tailrace.arguments import show
from tailrace.errors import InvalidError
from tailrace.indexes.definition import Definition
from tailrace.indexes.text.files import field_of, make_analyzer, make_schema

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<open>\() | (?P<close>\)) | (?P<sign>[+-])(?=\S) |
        (?:(?P<column>\w+):(?=\S))?
        (?: "(?P<phrase>[^"]*)"(?:~(?P<slop>\d+))? | (?P<word>[^\s()"]+) )
    )""",
    re.VERBOSE,
)
_MOST_WORDS, _LONGEST = 1024, 100_000
_LONGEST_WORD = 200  # of one that others may differ from, or begin with
_MOST_SLOP = 1_000  # places between the words of a phrase
_FUZZY = re.compile(r"(?P<text>.+)~(?P<distance>\d*)$")


class Occurs(Enum):
    """Whether rows should, must or must not have a clause."""

    SHOULD = "should"
    MUST = "must"
    MUST_NOT = "must not"


@dataclass(frozen=True, kw_only=True)
class Words:
    """A word, or several in a row."""

    text: str
    column: str | None = None
    is_phrase: bool = False
    slop: int = 0
    is_prefix: bool = False
    distance: int = 0


@dataclass(frozen=True)
class Group:
    """Clauses, each with its role."""

    clauses: tuple[tuple[Occurs, Group | Words], ...]


def parse(text: object) -> Group:
    """A query as a tree; InvalidError if it cannot be read."""
    if not isinstance(text, str):
        raise InvalidError(f"a full-text index is searched for text, not for {show(text)}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidError("the query is not Unicode text") from None
    tree = _Parser(text).whole()
    if not any(occurs is not Occurs.MUST_NOT for occurs, _ in tree.clauses):
        raise InvalidError(
            f"the query {show(text)} has no word to search for"
            if not tree.clauses
            else f"the query {show(text)} only says what must not be there: add a word that must"
        )
    return tree


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise InvalidError(f"a query has at most {_LONGEST:,} letters, not {len(text):,}")
        self._text, self._tokens, at = text.rstrip(), [], 0
        while at < len(self._text):
            match = _TOKEN.match(self._text, at)
            if match is None:
                rest = self._text[at:].strip()
                what = "a quote is not closed" if '"' in rest else "it ends too early"
                raise self._wrong(f"{what} at {show(rest)}")
            self._tokens.append(match)
            at = match.end()
            if len(self._tokens) > _MOST_WORDS:
                raise InvalidError(f"a query has at most {_MOST_WORDS} words")
        self._at = 0

    def _wrong(self, reason: str) -> InvalidError:
        return InvalidError(f"cannot read the query {show(self._text)}: {reason}")

    @property
    def _next(self) -> re.Match[str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take_word(self, *words: str) -> bool:
        token = self._next
        if token is not None and token["word"] in words and not token["column"]:
            self._at += 1
            return True
        return False

    def whole(self) -> Group:
        tree = self._group(0)
        if self._next is not None:
            raise self._wrong("a parenthesis is closed that was not opened")
        return tree

    def _group(self, depth: int) -> Group:
        """Clauses up to the end or a parenthesis; OR between them changes nothing."""
        if depth > 50:
            raise self._wrong("too many parentheses inside each other")
        clauses: list[tuple[Occurs, Group | Words]] = []
        while (token := self._next) is not None and not token["close"]:
            clauses.append(self._conjunction(depth))
            if self._take_word("OR", "||") and (self._next is None or self._next["close"]):
                raise self._wrong("nothing follows the OR")
        return Group(tuple(clauses))

    def _conjunction(self, depth: int) -> tuple[Occurs, Group | Words]:
        first = self._clause(depth)
        clauses = [first]
        while self._take_word("AND", "&&"):
            clauses.append(self._clause(depth))
        if len(clauses) == 1:
            return first
        strict = [
            (Occurs.MUST if occurs is Occurs.SHOULD else occurs, inner) for occurs, inner in clauses
        ]
        if all(occurs is Occurs.MUST_NOT for occurs, _ in strict):
            raise self._wrong("it only says what must not be there: add a word that must")
        return Occurs.SHOULD, Group(tuple(strict))

    def _clause(self, depth: int) -> tuple[Occurs, Group | Words]:
        occurs = Occurs.SHOULD
        token = self._next
        if token is not None and token["sign"]:
            self._at += 1
            occurs = Occurs.MUST if token["sign"] == "+" else Occurs.MUST_NOT
        elif self._take_word("NOT"):
            occurs = Occurs.MUST_NOT
        return occurs, self._primary(depth)

    def _primary(self, depth: int) -> Group | Words:
        token = self._next
        if token is None or token["close"]:
            raise self._wrong("it ends where a word is expected")
        self._at += 1
        if token["open"]:
            inside = self._group(depth + 1)
            if self._next is None:
                raise self._wrong("a parenthesis is not closed")
            self._at += 1
            if all(occurs is Occurs.MUST_NOT for occurs, _ in inside.clauses):
                raise self._wrong("a group only says what must not be there, or nothing at all")
            return inside
        if token["sign"] or token["word"] in ("AND", "OR", "NOT", "&&", "||"):
            raise self._wrong(f"a word is expected instead of {token[0].strip()!r}")
        if token["phrase"] is not None:
            slop = self._number(token["slop"], 0, _MOST_SLOP)
            return Words(text=token["phrase"], column=token["column"], is_phrase=True, slop=slop)
        return self._word(token["word"], token["column"])

    def _number(self, text: str | None, usual: int, most: int) -> int:
        if not text:
            return usual
        if len(text) > 9 or int(text) > most:
            raise self._wrong(f"the number behind ~ is at most {most}")
        return int(text)

    def _word(self, text: str, column: str | None) -> Words:
        is_prefix = len(text) > 1 and text.endswith("*")
        fuzzy = None if is_prefix else _FUZZY.match(text)
        if (is_prefix or fuzzy is not None) and len(text) > _LONGEST_WORD:
            raise InvalidError(
                f"a word with * or ~ behind it has at most {_LONGEST_WORD} letters, not {len(text)}"
            )
        if is_prefix:
            return Words(text=text[:-1], column=column, is_prefix=True)
        if fuzzy is not None:
            distance = self._number(fuzzy["distance"], 1, 9)
            if not 1 <= distance <= 2:
                raise self._wrong(f"words may differ in 1 or 2 letters, not in {distance}")
            return Words(text=fuzzy["text"], column=column, distance=distance)
        return Words(text=text, column=column)


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
