"""The store against plain Python lists, step by step, and DuckDB as a second witness."""

from __future__ import annotations

import tempfile
from random import Random

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.oracle import values
from tests.oracle.history import History
from tests.support import counted, duck
from tests.support.lakes import LakeArgs

SEEDS = st.integers(0, 2**32)
_MOST_TABLES = 4


class Machine(RuleBasedStateMachine):
    """Random steps; after each, the newest snapshot and an older one are compared."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="tailrace-model-")
        self.args = LakeArgs(catalog="sqlite", url=self.directory.name)
        self.lake = self.args.connect()
        self.history = History(self.lake, Random(0), spark=False)
        self.duck = duck.attach(self.args)

    def teardown(self) -> None:
        counted.count("histories of a lake, each step compared with DuckDB")
        self.duck.close()
        self.lake.close()
        self.directory.cleanup()

    @precondition(lambda self: len(self.history.now) < _MOST_TABLES)
    @rule(seed=SEEDS)
    def create(self, seed: int) -> None:
        self.history.random = Random(seed)
        self.history.create()

    @precondition(lambda self: self.history.now)
    @rule(seed=SEEDS)
    def write(self, seed: int) -> None:
        self.history.random = Random(seed)
        self.history.write()

    @precondition(lambda self: self.history.now)
    @rule(seed=SEEDS)
    def transaction(self, seed: int) -> None:
        self.history.random = Random(seed)
        self.history.transaction()

    @precondition(lambda self: self.history.now)
    @rule(seed=SEEDS)
    def alter(self, seed: int) -> None:
        self.history.random = Random(seed)
        self.history.alter()

    @precondition(lambda self: len(self.history.now) > 1)
    @rule(seed=SEEDS)
    def drop(self, seed: int) -> None:
        self.history.random = Random(seed)
        self.history.drop()

    @invariant()
    def the_lake_is_as_the_model_says(self) -> None:
        snapshots = sorted(self.history.at)
        older = self.history.random.choice(snapshots)
        for snapshot in {snapshots[-1], older}:
            for name, model in self.history.at[snapshot].items():
                expected = model.bag()
                if name in self.history.now:
                    ours = self.lake.table(name).to_arrow(at=snapshot)
                    assert values.bag(ours.to_pylist()) == expected
                plain = name.removeprefix("main.").strip("`")
                theirs = duck.read_table(self.duck, "main", plain, snapshot)
                assert values.bag(theirs.to_pylist()) == expected


@pytest.mark.usefixtures("spark")
def test_the_store_agrees_with_a_model_and_with_duckdb() -> None:
    hypothesis.stateful.run_state_machine_as_test(
        Machine,
        settings=hypothesis.settings(max_examples=8, stateful_step_count=12),
    )


@pytest.mark.stress
@pytest.mark.usefixtures("spark")
def test_the_store_agrees_with_a_model_over_new_histories() -> None:
    hypothesis.stateful.run_state_machine_as_test(
        Machine,
        settings=hypothesis.settings(max_examples=150, stateful_step_count=20, derandomize=False),
    )
