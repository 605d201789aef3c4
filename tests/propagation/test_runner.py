"""The runner, step by step: sequences that are too rare for dice, each of which broke it once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import ducklake as dl
from tailrace.propagation import joblog
from tailrace.propagation.job import NewJob
from tailrace.propagation.spec import complete
from tests.propagation.simulation import SimNode, World
from tests.propagation.test_simulation import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator


class Stage(World):
    """A world in which the test says what happens: one table, two nodes."""

    def __init__(self, database: Any) -> None:
        super().__init__(database, seed=0)
        self.tables, self.changes = [1], {1: []}
        self.nodes = []
        self._clear()
        self.start_node()
        self.start_node()

    def job(self, job_type: str = "default", **schedule: Any) -> int:
        before = set(self.jobs)
        self.names += 1
        trigger = {"job_type": job_type, "schedule": schedule}
        spec = complete({"trigger": trigger, "consumer": {"kind": "sim"}})
        with self.database.lock() as connection:
            new = NewJob(home="main.t", name=f"j{self.names}", spec=spec, sources=[1])
            now = self.clock.now()
            (job_id,) = joblog.insert_all(connection, [new], tenant="default", now=now)
        from tests.propagation.simulation import ModelJob

        self.jobs[job_id] = ModelJob(sources=(1,))
        assert job_id not in before
        return job_id

    def settle(self, node: SimNode) -> None:
        while self._settle(node):
            pass

    def drop_job(self, job_id: int) -> None:
        with self.database.lock() as connection:
            assert joblog.drop(connection, job_id, self.clock.now())
        self.jobs[job_id].dropped = True


@pytest.fixture
def stage() -> Iterator[Stage]:
    with catalog() as database:
        yield Stage(database)


def test_a_job_whose_table_lost_its_last_follower_in_the_same_look_skips_nothing(
    stage: Stage,
) -> None:
    one, two = stage.nodes
    old = stage.job()
    stage.commit()
    stage.settle(one)
    stage.look_on(two)
    stage.drop_job(old)
    new = stage.job()
    stage.settle(one)
    stage.commit()
    stage.look_on(two)
    stage.commit()
    stage.settle(two)  # the model objects if a change is skipped
    assert stage.jobs[new].covered == stage.snapshot


def test_the_claim_of_a_dead_node_holds_nobody(stage: Stage) -> None:
    one, two = stage.nodes
    first, lost = stage.job(), stage.job()
    stage.commit()
    stage.settle(one)
    stage.commit()
    stage.look_on(one)
    (execution,) = one.executions
    stage.go_on(one, execution)  # claims both
    stage.go_on(one, execution, may_fail=False)  # commits the first, and dies
    stage.nodes.remove(one)
    # The survivor lacks the other's consumer, and so never takes it over.
    is_ready = two.runner._is_ready
    two.runner._is_ready = lambda entry: entry.job.id != lost and is_ready(entry)  # type: ignore[method-assign]
    stage.clock.time += timedelta(minutes=2)
    two.heartbeat = stage.clock.now()
    stage.commit()
    stage.settle(two)
    assert stage.jobs[first].covered == stage.snapshot


def test_a_new_node_is_asked_about_before_its_work_is_planned_again(stage: Stage) -> None:
    one, two = stage.nodes
    stage.job()
    stage.commit()
    stage.look_on(one)
    stage.go_on(one, one.executions[0])
    stage.look_on(two)  # sees that one runs something, and asks who is alive
    stage.start_node()
    late = stage.nodes[-1]
    stage.job("greedy")
    stage.look_on(late)
    stage.go_on(late, late.executions[0])
    assert two.runner.look() == []


def test_a_retry_of_a_straggler_does_not_hold_the_others(stage: Stage) -> None:
    one, two = stage.nodes
    stage.nodes.remove(two)
    front = stage.job()
    stage.commit()
    stage.settle(one)
    behind = stage.job()
    stage.look_on(one)
    stage.go_on(one, one.executions[0])
    (first,) = one.executions
    stage.go_on(one, first, may_fail=False)
    stage.go_on(one, first)
    assert stage.jobs[behind].covered is not None
    # The front goes on while the other one fails at catching up.
    with stage.database.lock() as connection:
        joblog.write(connection, behind, watermark=0, claim_to=1, catches_up=1)
    stage.jobs[behind].covered, stage.jobs[behind].claim = 0, (0, 1)
    stage.look_on(one)
    assert [execution.work.jobs for execution in one.executions] == [(behind,)]
    stage.commit()
    stage.look_on(one)
    assert [execution.work.jobs for execution in one.executions] == [(behind,), (front,)]


def test_groups_survive_the_registration_of_a_trigger(stage: Stage) -> None:
    (one, *_) = stage.nodes
    first = stage.job()
    stage.settle(one)
    tailrace.trigger("another")(type("Another", (tailrace.Trigger,), {}))
    second = stage.job()
    stage.look_on(one)
    assert list(one.runner.cache.groups.values()) == [[first, second]]


def test_a_trigger_that_cannot_be_made_stops_only_its_own_jobs(stage: Stage) -> None:
    (one, *_) = stage.nodes

    @tailrace.trigger("moody")
    class Moody(tailrace.Trigger):
        good = True

        def __init__(self, schedule: Any) -> None:
            super().__init__(schedule)
            if not Moody.good:
                raise KeyError("at")

    moody, plain = stage.job("moody"), stage.job()
    Moody.good = False
    tailrace.trigger("moody")(Moody)  # as another process with another version has it
    stage.commit()
    stage.settle(one)
    assert stage.jobs[plain].covered == stage.snapshot
    assert stage.jobs[moody].covered is None
    Moody.good = True
    tailrace.trigger("moody")(Moody)
    stage.clock.time += timedelta(minutes=1)  # the next reconciliation
    one.heartbeat = stage.clock.now()
    stage.settle(one)
    assert stage.jobs[moody].covered == stage.snapshot


def test_work_that_broke_down_without_a_word_is_tried_after_a_pause(stage: Stage) -> None:
    (one, *_) = stage.nodes
    stage.job()
    stage.commit()
    stage.look_on(one)
    (execution,) = one.executions
    one.runner.finished(execution.work, broken=True)
    assert one.runner.look() == []
    due = one.runner.next_due()
    assert due is not None
    stage.clock.time += timedelta(seconds=6)
    assert len(one.runner.look()) == 1


def test_first_runs_and_what_is_much_to_read_are_backlogs(stage: Stage) -> None:
    one, two = stage.nodes
    stage.nodes.remove(two)
    stage.commit()
    front = stage.job()
    stage.settle(one)
    stage.job("greedy")
    stage.commit()
    works = one.runner.look()
    assert {work.jobs[0] == front: work.is_backlog for work in works} == {True: False, False: True}
    for work in works:
        one.runner.finished(work)
    stage.look_on(one)
    stage.settle(one)
    few = stage.runtime.settings.local_rows
    for commits in (1, 2):  # in one snapshot, and in several
        for _ in range(commits):
            stage.commit()
        with stage.database.write() as connection:
            connection.execute(
                sa.update(dl.data_file)
                .where(dl.data_file.c.begin_snapshot == stage.snapshot)
                .values(record_count=few + 1)
            )
        works = one.runner.look()
        assert [work.is_backlog for work in works] == [True, True]
        for work in works:
            one.runner.finished(work)
        stage.look_on(one)
        stage.settle(one)


def test_a_node_that_may_not_begin_a_job_looks_at_it_again_when_it_may(stage: Stage) -> None:
    _, two = stage.nodes
    job = stage.job()
    stage.commit()
    able = False
    two.runner._may_begin = lambda _job: able
    assert two.runner.look() == []
    assert two.runner.look() == []
    able = True
    two.runner.look_at_held()
    assert [work.jobs for work in two.runner.look()] == [(job,)]
