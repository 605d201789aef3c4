"""Parses what users search for in text.

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
from dataclasses import dataclass
from enum import Enum

from tailrace.arguments import show
from tailrace.errors import InvalidError

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
