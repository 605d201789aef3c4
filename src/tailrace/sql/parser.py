"""Cuts a script into statements, and reads one of them, token by token.

The parser remembers which words were tried at its place without success; an error there lists them
as valid. Only sqlglot's tokens are used: its own parser does not know our statements, and drops
parts of those that it knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.errors import InvalidError
from tailrace.spark_sql import grammar
from tailrace.sql.diagnostics import QueryText, Span, did_you_mean, error_at
from tailrace.store.names import fold, quoted_name

T = TypeVar("T")

# What opens a text, a name or a comment, and the message if it never closes.
_OPENERS = {
    "'": "this text has no end", '"': "this text has no end", "`": "this name has no end",
    "/*": "this comment has no end",
}  # fmt: skip
# One that closes, or a letter of something else.
_CLOSED = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|(?!/\*)[^'"`]""", re.DOTALL
)


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
    place = 0
    while closed := _CLOSED.match(text, place):
        place = closed.end()
    for opener, message in _OPENERS.items():
        if text.startswith(opener, place):
            return Span(start=place, end=place + len(opener)), message
    return Span(start=0, end=1), "this cannot be read as SQL"


_WORD = re.compile(r"[^\W\d]\w*")
_PAIRS = {"(": ")", "CASE": "END"}


class Parser:
    """A statement, and the place up to which it has been read."""

    def __init__(self, statement: Statement) -> None:
        self.statement = statement
        self.text = statement.text
        self._tokens = statement.tokens
        self._place = 0
        self._tried: dict[str, None] = {}

    # --- look -------------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        return self._place >= len(self._tokens)

    @property
    def offset(self) -> int:
        """Where the next token begins in the text; at the end, where the last one ends."""
        if self.at_end:
            return self._tokens[-1].end + 1
        return self._tokens[self._place].start

    @property
    def last_end(self) -> int:
        """Where the token before ends."""
        return self._tokens[self._place - 1].end + 1

    @property
    def last_name(self) -> str:
        """The text of the token before."""
        return str(self._tokens[self._place - 1].text)

    def word(self, ahead: int = 0) -> str:
        """The text of the next token in capitals; empty for one in quotes, and at the end."""
        place = self._place + ahead
        if place >= len(self._tokens):
            return ""
        token = self._tokens[place]
        if self.text[token.start : token.end + 1] != token.text:  # in quotes of some kind
            return ""
        return str(token.text).upper()

    @property
    def at_last(self) -> bool:
        """Whether there is one token left, or none."""
        return self._place + 1 >= len(self._tokens)

    # --- read -------------------------------------------------------------------------------

    def accept(self, *words: str) -> bool:
        """Pass over these words if all of them come next."""
        if all(self.word(n) == word for n, word in enumerate(words)):
            self._move(len(words))
            return True
        self._tried[" ".join(words)] = None
        return False

    def expect(self, *words: str) -> None:
        """Pass over these words, which have to come next."""
        for word in words:
            if not self.accept(word):
                raise self.fail()

    def one_of(self, words: Iterable[str]) -> str:
        """Pass over one of these words, and return it."""
        for word in words:
            if self.accept(word):
                return word
        raise self.fail()

    def name(self, what: str) -> str:
        """A single name, quoted with backticks or not."""
        if self.at_end:
            raise self.fail(f"the name of {what} is missing")
        token = self._tokens[self._place]
        quoted = token.token_type == TokenType.IDENTIFIER
        plain = token.token_type != TokenType.STRING and _WORD.fullmatch(token.text)
        if not quoted and not plain:
            hint = ""
            if token.token_type == TokenType.STRING:
                hint = "names are written without quotes, or with backticks: `name`"
            raise self.fail(f"the name of {what} is expected", hint=hint)
        return self._take()

    def object_name(self, what: str) -> str:
        """A name with or without a schema, as the lake's methods take it."""
        start = self.offset
        parts = [self.name(what)]
        while self.word() == ".":
            self._move(1)
            parts.append(self.name(what))
        if len(parts) > 2:
            span = Span(start=start, end=self.last_end)
            raise self.refuse(span, f"the name of {what} has at most two parts: schema.name")
        return quoted_name(*(["main", *parts][-2:]))

    def each(self, read: Callable[[], T]) -> list[T]:
        """What `read` reads: once, and again after each comma."""
        items = [read()]
        while self.accept(","):
            items.append(read())
        return items

    def column(self, what: str = "a column") -> tuple[str, Span]:
        """The name of a column, and its place."""
        start = self.offset
        name = self.name(what)
        return name, Span(start=start, end=self.last_end)

    def columns(self) -> list[tuple[str, Span]]:
        """`(column, …)`, each with its place."""
        self.expect("(")
        columns = self.each(self.column)
        self.expect(")")
        return columns

    def string(self, what: str) -> str:
        """A text in quotes."""
        if not self.at_end and self._tokens[self._place].token_type == TokenType.STRING:
            return self._take()
        raise self.fail(f"{what} is expected, as a text in quotes")

    def integer(self, what: str) -> int:
        """A whole number from 0 on."""
        if not self.at_end and re.fullmatch(r"\d+", self._tokens[self._place].text):
            return int(self._take())
        raise self.fail(f"{what} is expected, as a whole number")

    def upto(self, *stops: str, what: str = "") -> Span:
        """The piece before one of these words, a closing parenthesis or the end.

        Words inside of parentheses don't count, nor do those between CASE and END. An empty piece
        is an error if `what` says what is missing.
        """
        start = end = self.offset
        opened: list[str] = []
        while not self.at_end:
            word = self.word()
            if self._is_name():  # t.end, :end
                word = ""
            if not opened and (word in stops or word == ")"):
                break
            if word in _PAIRS:
                opened.append(_PAIRS[word])
            elif opened and word == opened[-1]:
                opened.pop()
            end = self._tokens[self._place].end + 1
            self._move(1)
        if what and start == end:
            raise self.fail(f"{what} is missing")
        return Span(start=start, end=end)

    def _is_name(self) -> bool:
        """Whether the next token stands where only a name can: after a dot or a colon."""
        before = self._tokens[self._place - 1].text if self._place else ""
        near = before in (".", ":") or self.word(1) in (".", ":")
        return near and _WORD.fullmatch(self._tokens[self._place].text) is not None

    def inside(self) -> Span:
        """What is between the parentheses that come next; also pass over these."""
        self.expect("(")
        span = self.upto()
        self.expect(")")
        return span

    def rest(self, what: str = "") -> Span:
        """Everything that is left, which is not nothing if `what` says what is missing then."""
        start = self.offset
        self._move(len(self._tokens) - self._place)
        if what and start == self.offset:
            raise self.fail(f"{what} is missing")
        return Span(start=start, end=self.offset)

    def cut(self, span: Span) -> str:
        """The text of a piece."""
        return self.text[span.start : span.end]

    def query(self, span: Span) -> QueryText:
        """A piece that is a query."""
        return QueryText(sql=self.cut(span), script=self.text, offset=span.start)

    def put_together(self, sql: str) -> QueryText:
        """A query that has pieces of the statement in it."""
        return QueryText(sql=sql, script=self.text)

    # --- refuse -----------------------------------------------------------------------------

    def end(self) -> None:
        """Raise unless the statement ends here."""
        if not self.at_end:
            self._tried["the end"] = None
            raise self.fail()

    def fail(self, message: str = "", *, hint: str = "") -> InvalidError:
        """An error about the next token."""
        if self.at_end:
            span = Span(start=self.offset, end=self.offset)
            text = message or "the statement ends too early"
        else:
            token = self._tokens[self._place]
            span = Span(start=token.start, end=token.end + 1)
            near = did_you_mean(token.text, self._tried)
            text = message or f"{self.cut(span)} is not expected here{near}"
        return error_at(self.text, span, text, valid=self._tried, hint=hint)

    def refuse(self, span: Span, message: str, *, hint: str = "") -> InvalidError:
        """An error about a piece that has been read."""
        return error_at(self.text, span, message, hint=hint)

    def known_column(self, name: str, span: Span, known: Sequence[str], table: str) -> str:
        """The column of a table that a name means, in the table's own letters."""
        for column in known:
            if fold(column) == fold(name):
                return column
        message = f"{table} has no column {name}{did_you_mean(name, known)}"
        raise self.refuse(span, message, hint=f"its columns: {', '.join(known)}")

    def _take(self) -> str:
        """Pass over the next token, and return its text."""
        self._move(1)
        return self.last_name

    def _move(self, count: int) -> None:
        if count:
            self._place += count
            self._tried = {}
