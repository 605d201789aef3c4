"""Cuts a user's text into lexemes, exactly as Spark does.

Always true: where sqlglot and Spark may disagree on where a word, a string or a comment ends, the
text is refused. Comments are blanked out before Spark gets a text, because Spark ends some of them
elsewhere.
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
    """Spark's tokens, one for each word: sqlglot's own takes the rest of a command as one text."""

    COMMANDS = set()  # noqa: RUF012  (sqlglot's own way)
    KEYWORDS = {  # noqa: RUF012
        word: kind for word, kind in Spark.Tokenizer.KEYWORDS.items() if " " not in word
    }


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
