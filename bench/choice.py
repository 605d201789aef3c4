"""Which parts of a measurement to run: all of them, unless the command line says otherwise."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.tpch.order_changes import KINDS

FRACTIONS = (0.001, 0.01, 0.1)
PARTS = ("tpch", "totals", "nothing")
# The queries that a change of orders and lines reaches: all of them read one of the two.
QUERIES = (1, 3, 4, 5, 6, 9, 10, 12, 13, 14, 17, 18, 20, 21, 22)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Parts of `bench.views`."""

    parts: tuple[str, ...] = PARTS
    scales: tuple[float, ...] = (1, 3)  # of TPC-H
    fractions: tuple[float, ...] = FRACTIONS
    kinds: tuple[str, ...] = KINDS
    queries: tuple[int, ...] = QUERIES
    on_spark: bool = False  # whether Spark does every refresh, as where a driver is small


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options for the parts; each takes a list with commas."""
    group = parser.add_argument_group("views", "parts of the measurement of views")
    group.add_argument("--parts", type=_some_of(PARTS), default=PARTS, help=", ".join(PARTS))
    group.add_argument("--fractions", type=_floats, default=FRACTIONS, help="of orders that change")
    group.add_argument("--kinds", type=_some_of(KINDS), default=KINDS, help=", ".join(KINDS))
    group.add_argument("--queries", type=_integers, default=QUERIES, help="of TPC-H, by number")
    group.add_argument("--on-spark", action="store_true", help="refresh on Spark, however small")


def scales(text: str) -> tuple[float, ...]:
    """The value of `--scale`."""
    return _floats(text)


def chosen(arguments: argparse.Namespace) -> Choice:
    """The parts that the command line names."""
    return Choice(
        parts=arguments.parts,
        scales=arguments.scale or Choice.scales,
        fractions=arguments.fractions,
        kinds=arguments.kinds,
        queries=arguments.queries,
        on_spark=arguments.on_spark,
    )


def _floats(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _some_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        if not set(chosen) <= set(known):
            raise argparse.ArgumentTypeError(f"known are {', '.join(known)}")
        return chosen

    return parse
