"""Users' Spark SQL as tokens and trees: the one place where it is parsed.

Always true: what is parsed is bounded in its length, in how deep it is nested, and in the steps
that reading it takes, because sqlglot tries some forms in several ways: nested calls that could
be types, joins without a condition, each of them twice the work of the one before. What is beyond a
bound is an InvalidError that names it. What is wrong otherwise is sqlglot's own error, for those
who can say more of it, or ask Spark.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from tailrace.arguments import LONGEST_TEXT
from tailrace.errors import InvalidError

# Parentheses and the like inside each other. sqlglot goes down by recursion, and has room for that.
DEEPEST = 32
LIMIT = f"at most {DEEPEST} parentheses, calls or CASEs inside each other are read"
# Tables that a query names, the same one as often as it does.
MOST_TABLES = 1_000
# Steps of the parser: it takes a few for each token of what people write.
STEPS, _STEPS_A_TOKEN = 200_000, 50

_OPEN = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSE = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}


def tokenize(text: str) -> list[Token]:
    """The tokens of a text; sqlglot's TokenError if it has an end where there should be none."""
    check_length(text)
    return list(sqlglot.tokenize(text, dialect="spark"))


def parse(text: str) -> list[exp.Expr]:
    """The statements of a text; sqlglot's errors if it is no Spark SQL."""
    tokens = tokenize(text)
    check_depth(tokens)
    from tailrace.spark_sql.parser import Parser  # takes a while, and most commands parse nothing

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
    """The only statement of a text; sqlglot's errors if it is no Spark SQL, or several."""
    trees = parse(text)
    if len(trees) != 1:
        raise ParseError(f"one statement is expected, not {len(trees)}")
    return trees[0]


def check_length(text: str) -> None:
    """Refuse a text that is too long."""
    if len(text) > LONGEST_TEXT:
        raise InvalidError(
            f"a text in SQL has at most {LONGEST_TEXT:,} characters, not {len(text):,}"
        )


def check_depth(tokens: Iterable[Token]) -> None:
    """Refuse a text that is nested too deeply."""
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
