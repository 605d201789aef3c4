"""A script, cut into statements at the semicolons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.spark_sql import grammar
from tailrace.sql.diagnostics import Span, error_at

# What opens a text or a name, and the message if it never closes.
_QUOTES = {"'": "this text has no end", '"': "this text has no end", "`": "this name has no end"}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One statement of a script, as tokens."""

    text: str  # the whole script, which errors quote
    tokens: tuple[Token, ...]

    @property
    def sql(self) -> str:
        """Its own text, without the semicolon."""
        return self.text[self.tokens[0].start : self.tokens[-1].end + 1]


def statements(text: str) -> Iterator[Statement]:
    """The statements of a script, without empty ones and mere comments."""
    tokens: list[Token] = []
    for token in tokens_of(text):
        if token.token_type != TokenType.SEMICOLON:
            tokens.append(token)
        elif tokens:
            yield Statement(text=text, tokens=tuple(tokens))
            tokens = []
    if tokens:
        yield Statement(text=text, tokens=tuple(tokens))


def is_complete(text: str) -> bool:
    """Whether a text ends with a semicolon; until it does, a shell asks for more lines."""
    try:
        tokens = grammar.tokens_of(text)
    except TokenError:
        return False
    return not tokens or tokens[-1].token_type == TokenType.SEMICOLON


def tokens_of(text: str) -> list[Token]:
    """All tokens; an InvalidError for a text or comment that never ends."""
    try:
        return grammar.tokens_of(text)
    except TokenError as error:
        span, message = _unended(text)
        raise error_at(text, span, message, hint="close it with the same mark") from error


def _unended(text: str) -> tuple[Span, str]:
    """Where the text, name or comment begins that never ends."""
    place, opened = 0, ""
    start = 0
    while place < len(text):
        here = text[place]
        if opened == "/*":
            if text.startswith("*/", place):
                opened, place = "", place + 1
        elif opened:
            if here == "\\" and opened != "`":
                place += 1
            elif here == opened:
                opened = ""
        elif here in _QUOTES:
            opened, start = here, place
        elif text.startswith("--", place):
            place = text.find("\n", place)
            if place < 0:
                break
        elif text.startswith("/*", place):
            opened, start = "/*", place
        place += 1
    if not opened:
        return Span(start=0, end=1), "this cannot be read as SQL"
    message = "this comment has no end" if opened == "/*" else _QUOTES[opened]
    return Span(start=start, end=start + len(opened)), message
