"""Reads a user's text as Spark's grammar does: its lexemes, and the names that may be tables.

Always true: where sqlglot and Spark may disagree on where a word, a string or a comment ends, the
text is refused. Comments are blanked out before Spark gets a text, because Spark ends some of them
elsewhere. `relations` only checks sqlglot's tree: a name where Spark takes a table is refused
unless the tree has it as one. So it may find too many, but never too few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token

from tailrace.errors import InvalidError

# Functions with a FROM between their arguments.
_WITH_FROM = ("EXTRACT", "TRIM", "SUBSTR", "SUBSTRING", "OVERLAY")
# BY after these begins a list that is not of tables.
_LISTS = ("GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "PARTITION")
_BETWEEN_QUERIES = ("UNION", "EXCEPT", "MINUS", "INTERSECT", "ALL", "DISTINCT")
# What may follow the alias of a table, beside marks.
_AFTER_ALIAS = (
    "ANTI", "ASOF", "CROSS", "FULL", "GROUP", "HAVING", "INNER", "JOIN", "LATERAL", "LEFT",
    "LIMIT", "NATURAL", "OFFSET", "ON", "ORDER", "PIVOT", "RIGHT", "SELECT", "SEMI", "SORT",
    "TABLESAMPLE", "UNPIVOT", "USING", "WATERMARK", "WHERE", "WINDOW", "WITH",
)  # fmt: skip
# What may stand before a table, or a query in its place.
_BEFORE = ("SELECT", "FROM", "WITH", "VALUES", "TABLE", "LATERAL", "STREAM")
# What begins a value in the rows of a VALUES, or follows a column that is called like a keyword.
_VALUES = (
    "AS", "NULL", "TRUE", "FALSE", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ",
    "INTERVAL", "CURRENT_DATE", "CURRENT_TIMESTAMP", "CASE", "NOT",
)  # fmt: skip


class Tokenizer(Spark.Tokenizer):
    """Spark's tokens, one for each word: sqlglot's own takes the rest of a command as one text."""

    COMMANDS = set()  # noqa: RUF012  (sqlglot's own way)
    KEYWORDS = {  # noqa: RUF012
        word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if " " not in word
    }


class Parser(Spark.Parser):  # type: ignore[valid-type,misc]
    """Spark's parser, which gives up after `most_steps`: `spark_sql.parse` sets them."""

    steps = 0
    most_steps = 0

    def _advance(self, times: int = 1) -> None:
        self.steps += 1
        if self.steps > self.most_steps:
            raise InvalidError(
                f"this text takes too long to read, more than {self.most_steps:,} steps: write "
                "joins with their conditions, and fewer calls inside each other"
            )
        super()._advance(times)


class RefusedError(InvalidError):
    """A part of a text that must not reach Spark."""

    def __init__(self, message: str, *, start: int = 0, end: int = 0, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.start, self.end, self.hint = message, start, end, hint


class LexemeKind(Enum):
    """What a lexeme is, and the shape that makes Spark see the same one."""

    WORD = r"\w+"  # also a whole number
    NAME = r"`(?:[^`]|``)+`"
    STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[rR](?:'[^']*'|"[^"]*")|[xX]'[^'\\]*'"""
    NUMBER = r"\d+\.\d*(?:[eE][-+]?\d+)?\w*|\d+[eE][-+]\d+\w*"
    HINT = r"/\*\+(?:[\w\s,.()]|`[\w ]+`)*\*/"
    MARK = r"[-+*/%<>=!|&^~\[\]:?().,]+"


_SHAPES = {kind: re.compile(kind.value, re.DOTALL) for kind in LexemeKind}


@dataclass(frozen=True, kw_only=True)
class Lexeme:
    """A word, name, literal or mark of a text, and where it stands."""

    kind: LexemeKind
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """Its text in capitals if it can be a keyword, else empty."""
        return self.text.upper() if self.kind is LexemeKind.WORD else ""

    @property
    def is_name(self) -> bool:
        """Whether it can name something."""
        return self.kind is LexemeKind.NAME or (
            self.kind is LexemeKind.WORD and not self.text.isdecimal()
        )

    @property
    def name(self) -> str:
        """Its text without quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind is LexemeKind.NAME else self.text

    def refused(self, message: str, *, upto: Lexeme | None = None, hint: str = "") -> RefusedError:
        """An error about this lexeme, or about all from it up to another."""
        return RefusedError(message, start=self.start, end=(upto or self).end, hint=hint)


def tokens_of(text: str) -> list[Token]:
    """All tokens; sqlglot's TokenError for a string or comment that never ends."""
    return list(Tokenizer(dialect="spark").tokenize(text))


def without_comments(text: str) -> str:
    """A text with spaces in place of its comments, and everything else where it was."""
    pieces, place = [], 0
    for start, end in _spans(text):
        pieces += [_blank(text[place:start]), text[start:end]]
        place = end
    return "".join([*pieces, _blank(text[place:])])


def lexemes_of(text: str) -> list[Lexeme]:
    """The lexemes of a text without comments; RefusedError where Spark may cut it differently."""
    lexemes = []
    for start, end in _spans(text):
        own = text[start:end]
        kind = next((kind for kind, shape in _SHAPES.items() if shape.fullmatch(own)), None)
        if kind is None or (kind is LexemeKind.WORD and any(map(_is_another, own))):
            raise RefusedError(f"{own[:40]} is not expected here", start=start, end=end)
        lexemes.append(Lexeme(kind=kind, text=own, start=start, end=end))
    for one, other in pairwise(lexemes):
        # To Spark, a://b is one name.
        if one.text == ":" and other.text.startswith("/") and one.end == other.start:
            raise one.refused(":/ is not expected here", upto=other)
    return lexemes


def _spans(text: str) -> list[tuple[int, int]]:
    """Where tokens begin and end; 1L is three of them to sqlglot."""
    return list(dict.fromkeys((token.start, token.end + 1) for token in tokens_of(text)))


def _blank(text: str) -> str:
    return "".join(letter if letter == "\n" else " " for letter in text)


def _is_another(letter: str) -> bool:
    """Whether Spark may take a letter for one of A to Z, as the long s for an S."""
    return not letter.isascii() and (letter.upper().isascii() or letter.lower().isascii())


@dataclass(kw_only=True)
class _Level:
    """What is known between two parentheses."""

    opener: str = ""  # the keyword before the parenthesis
    lists_tables: bool = False  # whether a table may follow a comma
    begins: bool = False  # whether one may follow now


def relations(lexemes: Sequence[Lexeme]) -> Iterator[Lexeme]:
    """The first lexeme of each name that Spark may take for a table."""
    levels = [_Level()]
    place = 0
    while place < len(lexemes):
        word, level = lexemes[place], levels[-1]
        if level.begins and _may_name(lexemes, place):
            last = _end_of_name(lexemes, place)
            if _at(lexemes, last + 1) != "(":  # else a function
                yield word
            level.begins = False
            place = last
        elif word.text == "(":
            opener = lexemes[place - 1].keyword if place else ""
            levels.append(_Level(opener=opener, lists_tables=level.begins, begins=level.begins))
            level.begins = False
        elif word.text == ")":
            levels = levels[:-1] or [_Level()]
        elif word.text == ",":
            level.begins = level.lists_tables
        elif word.text == ".":
            place += 1  # what follows is part of a name, whatever it is
        else:
            _follow(level, lexemes, place)
        place += 1


def _may_name(lexemes: Sequence[Lexeme], place: int) -> bool:
    word, after = lexemes[place], _at(lexemes, place + 1)
    if word.keyword in (*_BEFORE, *_VALUES):
        return after == "." or (word.keyword in _BEFORE and after in ("", ")", ","))
    return word.is_name


def _at(lexemes: Sequence[Lexeme], place: int) -> str:
    """The text at a place; empty beyond the ends."""
    return lexemes[place].text if 0 <= place < len(lexemes) else ""


def _end_of_name(lexemes: Sequence[Lexeme], place: int) -> int:
    while _at(lexemes, place + 1) == "." and place + 2 < len(lexemes):
        place += 2
    return place


def _follow(level: _Level, lexemes: Sequence[Lexeme], place: int) -> None:
    """What a word changes for those that follow."""
    word, before, after = (
        lexemes[n].keyword if 0 <= n < len(lexemes) else "" for n in (place, place - 1, place + 1)
    )
    if word == "FROM" and (level.opener in _WITH_FROM or _compares(lexemes, place)):
        level.begins = False
    elif word in ("FROM", "JOIN"):
        level.lists_tables = level.begins = True
    elif word == "TABLE":
        level.begins = True
    elif word == "WITH" and _begins_queries(lexemes, place):
        level.lists_tables = level.begins = False
    elif word == "SELECT" and not (level.lists_tables and _may_be_alias(lexemes, place)):
        level.opener = ""
        level.lists_tables = level.begins = False
    elif not level.begins and _ends_tables(lexemes, place, word, before, after):
        level.lists_tables = False
    elif word not in ("LATERAL", "STREAM"):
        level.begins = False


def _begins_queries(lexemes: Sequence[Lexeme], place: int) -> bool:
    """Whether WITH is followed by named queries; the name of a table is followed by an alias."""
    name = place + 2 if _at(lexemes, place + 1).upper() == "RECURSIVE" else place + 1
    first = _at(lexemes, place - 1) in ("", "(")
    return first and _at(lexemes, name + 1).upper() in ("AS", "(")


def _ends_tables(lexemes: Sequence[Lexeme], place: int, word: str, before: str, after: str) -> bool:
    """Whether commas are no longer between tables, beyond doubt: most keywords may be aliases."""
    return (
        (word == "BY" and before in _LISTS)
        or (word == "LATERAL" and after == "VIEW")
        or (word == "WINDOW" and _at(lexemes, place + 2).upper() == "AS")
        or lexemes[place].text == "|>"
    )


def _may_be_alias(lexemes: Sequence[Lexeme], place: int) -> bool:
    """Whether a SELECT after a FROM can be the alias of a table: FROM t SELECT, u."""
    if lexemes[place - 1].keyword in _BETWEEN_QUERIES or place + 1 >= len(lexemes):
        return False
    after = lexemes[place + 1]
    return after.keyword in _AFTER_ALIAS or (after.kind is LexemeKind.MARK and after.text != "*")


def _compares(lexemes: Sequence[Lexeme], place: int) -> bool:
    """Whether a FROM is that of a IS [NOT] DISTINCT FROM b."""
    keywords = [word.keyword for word in lexemes[max(place - 4, 0) : place]]
    if keywords[-3:] == ["IS", "NOT", "DISTINCT"]:
        left = place - 4
    elif keywords[-2:] == ["IS", "DISTINCT"]:
        left = place - 3
    else:
        return False
    if left < 0:
        return False
    operand = lexemes[left]
    return operand.text == ")" or (
        operand.kind is not LexemeKind.MARK and operand.keyword != "SELECT"
    )
