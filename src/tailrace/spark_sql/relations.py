"""The tables that Spark will look for in a query, by the places where its grammar has them.

A second reading beside sqlglot's tree, and nothing but a check of it: a name that stands where
Spark takes a table, and that the tree does not have as one, is refused. So it may find too many,
and never too few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tailrace.spark_sql.words import Kind, Word

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


def relations(words: Sequence[Word]) -> Iterator[Word]:
    """The first word of each name that Spark may take for a table."""
    levels = [_Level()]
    place = 0
    while place < len(words):
        word, level = words[place], levels[-1]
        if level.begins and _may_name(words, place):
            last = _end_of_name(words, place)
            if _at(words, last + 1) != "(":  # else a function
                yield word
            level.begins = False
            place = last
        elif word.text == "(":
            opener = words[place - 1].keyword if place else ""
            levels.append(_Level(opener=opener, lists_tables=level.begins, begins=level.begins))
            level.begins = False
        elif word.text == ")":
            levels = levels[:-1] or [_Level()]
        elif word.text == ",":
            level.begins = level.lists_tables
        elif word.text == ".":
            place += 1  # what follows is part of a name, whatever it is
        else:
            _follow(level, words, place)
        place += 1


def _may_name(words: Sequence[Word], place: int) -> bool:
    word, after = words[place], _at(words, place + 1)
    if word.keyword in (*_BEFORE, *_VALUES):
        return after == "." or (word.keyword in _BEFORE and after in ("", ")", ","))
    return word.is_name


def _at(words: Sequence[Word], place: int) -> str:
    """The text at a place; empty beyond the ends."""
    return words[place].text if 0 <= place < len(words) else ""


def _end_of_name(words: Sequence[Word], place: int) -> int:
    while _at(words, place + 1) == "." and place + 2 < len(words):
        place += 2
    return place


def _follow(level: _Level, words: Sequence[Word], place: int) -> None:
    """What a word changes for those that follow."""
    word, before, after = (
        words[n].keyword if 0 <= n < len(words) else "" for n in (place, place - 1, place + 1)
    )
    if word == "FROM" and (level.opener in _WITH_FROM or _compares(words, place)):
        level.begins = False
    elif word in ("FROM", "JOIN"):
        level.lists_tables = level.begins = True
    elif word == "TABLE":
        level.begins = True
    elif word == "WITH" and _begins_queries(words, place):
        level.lists_tables = level.begins = False
    elif word == "SELECT" and not (level.lists_tables and _may_be_alias(words, place)):
        level.opener = ""
        level.lists_tables = level.begins = False
    elif not level.begins and _ends_tables(words, place, word, before, after):
        level.lists_tables = False
    elif word not in ("LATERAL", "STREAM"):
        level.begins = False


def _begins_queries(words: Sequence[Word], place: int) -> bool:
    """Whether WITH is followed by named queries; the name of a table is followed by an alias."""
    name = place + 2 if _at(words, place + 1).upper() == "RECURSIVE" else place + 1
    first = _at(words, place - 1) in ("", "(")
    return first and _at(words, name + 1).upper() in ("AS", "(")


def _ends_tables(words: Sequence[Word], place: int, word: str, before: str, after: str) -> bool:
    """Whether commas are no longer between tables, beyond doubt: most keywords may be aliases."""
    return (
        (word == "BY" and before in _LISTS)
        or (word == "LATERAL" and after == "VIEW")
        or (word == "WINDOW" and _at(words, place + 2).upper() == "AS")
        or words[place].text == "|>"
    )


def _may_be_alias(words: Sequence[Word], place: int) -> bool:
    """Whether a SELECT after a FROM can be the alias of a table: FROM t SELECT, u."""
    if words[place - 1].keyword in _BETWEEN_QUERIES or place + 1 >= len(words):
        return False
    after = words[place + 1]
    return after.keyword in _AFTER_ALIAS or (after.kind is Kind.MARK and after.text != "*")


def _compares(words: Sequence[Word], place: int) -> bool:
    """Whether a FROM is that of a IS [NOT] DISTINCT FROM b."""
    keywords = [word.keyword for word in words[max(place - 4, 0) : place]]
    if keywords[-3:] == ["IS", "NOT", "DISTINCT"]:
        left = place - 4
    elif keywords[-2:] == ["IS", "DISTINCT"]:
        left = place - 3
    else:
        return False
    if left < 0:
        return False
    given = words[left]
    return given.text == ")" or (given.kind is not Kind.MARK and given.keyword != "SELECT")
