"""What Spark's SQL means, without a Spark: parsing, types, functions, and a translator to DuckDB.

This module is the one place where users' SQL is parsed. `grammar` reads it a second time as Spark
does, `types` and `functions` know Spark's types and functions, and `duckdb` evaluates expressions
in the process.

Always true: a text that is parsed is bounded in length, in nesting and in the parser's steps,
because sqlglot tries some forms in several ways: each nested call that could be a type, and each
join without a condition, doubles the work. Beyond a bound, an InvalidError names it. Anything else
that is wrong stays sqlglot's own error: callers can say more, or ask Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.arguments import LONGEST_TEXT
from tailrace.errors import InvalidError

# Parentheses and the like inside each other: sqlglot recurses, and the stack holds that many.
DEEPEST = 32
LIMIT = f"at most {DEEPEST} parentheses, calls or CASEs inside each other are read"
# Names of tables in a query, repeated ones included.
MOST_TABLES = 1_000
# Steps of the parser; what people write takes a few for each token.
STEPS, _STEPS_A_TOKEN = 200_000, 50

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


def tokenize(text: str) -> list[Token]:
    """The tokens of a text; sqlglot's TokenError if a string or comment never ends."""
    check_length(text)
    return list(sqlglot.tokenize(text, dialect="spark"))


def parse(text: str) -> list[exp.Expr]:
    """The statements of a text; sqlglot's errors if it is not Spark SQL."""
    tokens = tokenize(text)
    check_depth(tokens)
    from tailrace.spark_sql.grammar import Parser  # takes a while, and most commands parse nothing

    parser = Parser(dialect=sqlglot.Dialect.get_or_raise("spark"))
    parser.most_steps = STEPS + _STEPS_A_TOKEN * len(tokens)
    try:
        trees = [tree for tree in parser.parse(tokens, text) if tree is not None]
    except RecursionError:
        raise _too_deep() from None
    except (SqlglotError, InvalidError):
        raise
    except Exception as error:  # it stumbles over some texts, as over map(1)
        raise ParseError("it is no SQL of Spark's") from error
    if sum(1 for tree in trees for _ in tree.find_all(exp.Table)) > MOST_TABLES:
        raise InvalidError(f"a query names at most {MOST_TABLES:,} tables")
    return trees


def parse_one(text: str) -> exp.Expr:
    """The only statement of a text; sqlglot's errors if it is not Spark SQL, or several."""
    trees = parse(text)
    if len(trees) != 1:
        raise ParseError(f"one statement is expected, not {len(trees)}")
    return trees[0]


def check_length(text: str) -> None:
    """Raise InvalidError if a text is too long."""
    if len(text) > LONGEST_TEXT:
        raise InvalidError(
            f"a text in SQL has at most {LONGEST_TEXT:,} characters, not {len(text):,}"
        )


def check_depth(tokens: Iterable[Token]) -> None:
    """Raise InvalidError if a text is nested too deeply."""
    depth = 0
    for token in tokens:
        if token.token_type in _OPEN:
            depth += 1
            if depth > DEEPEST:
                raise _too_deep()
        elif token.token_type in _CLOSE:
            depth = max(0, depth - 1)


class TooDeepError(InvalidError):
    """A text that is nested too deeply."""


def _too_deep() -> TooDeepError:
    return TooDeepError(f"this is nested too deeply: {LIMIT}")
