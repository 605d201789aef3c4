"""A user's text, cut into words as Spark cuts it.

Always true: where sqlglot and Spark may disagree on where a word, a string or a comment ends, the
text is refused. Comments are no words: they are taken out before Spark gets a text, since some of
them end elsewhere for Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from sqlglot.dialects.spark import Spark
from sqlglot.tokenizer_core import Token

from tailrace.errors import InvalidError


class Tokenizer(Spark.Tokenizer):
    """Spark's tokens, one for each word: sqlglot takes the rest of a command as one text."""

    COMMANDS = set()  # noqa: RUF012  (sqlglot's own way)
    KEYWORDS = {  # noqa: RUF012
        word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if " " not in word
    }


class RefusedError(InvalidError):
    """A piece of a text that does not reach Spark."""

    def __init__(self, message: str, *, start: int = 0, end: int = 0, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message, self.start, self.end, self.hint = message, start, end, hint


class Kind(Enum):
    """What a word is, and what it has to look like for Spark to see the same one."""

    WORD = r"\w+"  # also a whole number
    NAME = r"`(?:[^`]|``)+`"
    STRING = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[rR](?:'[^']*'|"[^"]*")|[xX]'[^'\\]*'"""
    NUMBER = r"\d+\.\d*(?:[eE][-+]?\d+)?\w*|\d+[eE][-+]\d+\w*"
    HINT = r"/\*\+(?:[\w\s,.()]|`[\w ]+`)*\*/"
    MARK = r"[-+*/%<>=!|&^~\[\]:?().,]+"


_SHAPES = {kind: re.compile(kind.value, re.DOTALL) for kind in Kind}


@dataclass(frozen=True, kw_only=True)
class Word:
    """A piece of a text that has no smaller ones."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """In capitals, if it can be a keyword; else empty."""
        return self.text.upper() if self.kind is Kind.WORD else ""

    @property
    def is_name(self) -> bool:
        """Whether it can name something."""
        return self.kind is Kind.NAME or (self.kind is Kind.WORD and not self.text.isdecimal())

    @property
    def name(self) -> str:
        """Without quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind is Kind.NAME else self.text

    def refused(self, message: str, *, upto: Word | None = None, hint: str = "") -> RefusedError:
        """An error about it, or about all up to another."""
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


def words_of(text: str) -> list[Word]:
    """The words of a text without comments."""
    found = []
    for start, end in _spans(text):
        own = text[start:end]
        kind = next((kind for kind, shape in _SHAPES.items() if shape.fullmatch(own)), None)
        if kind is None or (kind is Kind.WORD and any(map(_is_another, own))):
            raise RefusedError(f"{own[:40]} is not expected here", start=start, end=end)
        found.append(Word(kind=kind, text=own, start=start, end=end))
    for one, other in pairwise(found):
        # To Spark, a://b is one name.
        if one.text == ":" and other.text.startswith("/") and one.end == other.start:
            raise one.refused(":/ is not expected here", upto=other)
    return found


def _spans(text: str) -> list[tuple[int, int]]:
    """Where tokens begin and end; 1L is three of them to sqlglot."""
    return list(dict.fromkeys((token.start, token.end + 1) for token in tokens_of(text)))


def _blank(text: str) -> str:
    return "".join(letter if letter == "\n" else " " for letter in text)


def _is_another(letter: str) -> bool:
    """Whether Spark may take a letter for one of A to Z, as the long s for an S."""
    return not letter.isascii() and (letter.upper().isascii() or letter.lower().isascii())
