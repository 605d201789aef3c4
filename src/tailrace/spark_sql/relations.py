"""Finds the names in a query that Spark may take for tables, by its grammar.

A second reading that only checks sqlglot's tree: a name where Spark takes a table is refused unless
the tree has it as one. So it may find too many, but never too few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.spark_sql.lexer import Lexeme, LexemeKind

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
