"""What is said of wrong statements: `wrong_statements.txt` has each with its message.

After a change of messages, `TAILRACE_REWRITE=1` writes the file anew, to be read before it is
committed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace

FILE = Path(__file__).with_name("wrong_statements.txt")
BETWEEN = "\n" + "=" * 80 + "\n"
SAYS = "\n" + "-" * 80 + "\n"
CASES = [case.split(SAYS) for case in FILE.read_text(encoding="utf-8").strip("\n").split(BETWEEN)]


@pytest.fixture(scope="module")
def lake(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tailrace.Lake]:
    with tailrace.connect(tmp_path_factory.mktemp("sql") / "lake") as lake:
        lake.sql(
            """
            CREATE SCHEMA sales;
            CREATE TABLE sales.orders (
                id BIGINT PRIMARY KEY, customer STRING, amount DECIMAL(12,2), note STRING);
            INSERT INTO sales.orders VALUES (1, 'ada', 12.5, NULL);
            CREATE MATERIALIZED VIEW sales.by_customer AS
                SELECT customer, sum(amount) AS total FROM sales.orders GROUP BY customer;
            REFRESH MATERIALIZED VIEW sales.by_customer;
            CREATE TABLE page (number BIGINT PRIMARY KEY, body STRING, emb ARRAY<FLOAT>);
            CREATE INDEX body_ft ON page USING FULLTEXT (body);
            CREATE INDEX body_emb ON page USING VECTOR (emb) WITH (dimension = 2);
            REFRESH INDEX body_ft ON page;
            REFRESH INDEX body_emb ON page
            """
        )
        yield lake


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0][:40] for case in CASES])
def test_a_wrong_statement_is_refused_with_the_fix(lake: tailrace.Lake, number: int) -> None:
    statement, expected = CASES[number][0], CASES[number][1] if len(CASES[number]) > 1 else ""
    before = lake.snapshot
    with pytest.raises(tailrace.TailraceError) as caught:
        lake.sql(statement).to_arrow()
    if os.environ.get("TAILRACE_REWRITE"):
        CASES[number] = [statement, str(caught.value)]
        FILE.write_text(BETWEEN.join(SAYS.join(case) for case in CASES) + "\n", encoding="utf-8")
    else:
        assert str(caught.value) == expected
    assert lake.snapshot == before


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 30
