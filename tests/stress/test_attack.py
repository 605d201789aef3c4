"""An attack on the store and the jobs: everything fails at once, and nothing may come of it.

Lost, doubled, torn, or reported wrongly: any of these in any table, whatever the processes were
told, is a failure. The seed is printed with the counts at the end of the run.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tests.crash.test_kill import STEPS
from tests.stress import bad_consumers, list_append
from tests.stress.bad_storage import BadStorage, Fault
from tests.support import children, counted, seeds, servers, victim
from tests.support.lakes import LakeArgs, configure
from tests.support.postgres import PostgresServer, run_postgres
from tests.support.process import wait_until
from tests.support.proxy import Lose, Proxy, proxy_to
from tests.support.rows import bag

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from tests.support.s3 import S3Bucket

pytestmark = [pytest.mark.stress, pytest.mark.timeout(900)]

WRITERS = 8
NTH_STEPS = [(step, STEPS[: n + 1].count(step)) for n, step in enumerate(STEPS)]


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server of this test's own, to be killed."""
    with run_postgres() as server:
        yield server


# --- writers, database and network --------------------------------------------------------------


@dataclass
class Writers:
    """Processes that append to lists."""

    args: LakeArgs
    logs: Path
    random: Random
    stop: Any = field(default_factory=lambda: children.context().Event())
    running: list[Any] = field(default_factory=list)
    killed: int = 0

    def start_one(self) -> None:
        number = len(list(self.logs.iterdir()))
        log = self.logs / f"{number}"
        log.touch()
        work = (self.args, f"w{number}", self.random.randrange(2**32), str(log), self.stop)
        self.running.append(children.start(list_append.write, *work))

    def kill_one(self) -> None:
        child = self.running.pop(self.random.randrange(len(self.running)))
        child.kill()
        assert children.join(child) == -signal.SIGKILL
        self.killed += 1
        self.start_one()

    def freeze_one(self) -> None:
        """Longer than the server lets it hold the lock, now and then."""
        pid = self.random.choice(self.running).pid
        os.kill(pid, signal.SIGSTOP)
        seconds = self.random.choice([0.1, 0.5, 4])
        timer = threading.Timer(seconds, lambda: os.kill(pid, signal.SIGCONT))
        timer.start()
        timer.join()

    def end(self) -> None:
        self.stop.set()
        for child in self.running:
            assert children.join(child, 120) == 0, "a writer failed with something else"


def test_lists_are_snapshot_isolated_whoever_is_killed(
    database: PostgresServer, tmp_path: Path
) -> None:
    random = Random(seeds.seed())
    name = database.create_database()
    direct = LakeArgs(catalog="postgres", url=database.url(name), data=str(tmp_path / "data"))
    (tmp_path / "logs").mkdir()
    with direct.connect() as lake:
        list_append.make(lake)
        first = lake.snapshot
        _configure_quick(lake)
    with proxy_to(database.port) as proxy:
        url = direct.url.replace(f":{database.port}/", f":{proxy.port}/")
        writers = Writers(LakeArgs(catalog="postgres", url=url), tmp_path / "logs", random)
        for _ in range(WRITERS):
            writers.start_one()
        databases = _torment(writers, database, proxy, random, seconds=240)
        writers.end()
    with direct.connect() as lake:
        attempts = list_append.read_logs((tmp_path / "logs").iterdir())
        history = list_append.read_history(lake, first)
        assert list_append.check(attempts, history) == []
        held = history.log
        for attempt in attempts:
            if attempt.ended is list_append.Ended.UNKNOWN and attempt.appends:
                known = lake.outcome(attempt.id) is not None
                assert known == bool(held[next(iter(attempt.appends.values()))])
    for ended in list_append.Ended:
        counted.count(f"transactions of list-append, {ended}", _count(attempts, ended))
    counted.count("writers killed", writers.killed)
    counted.count("databases killed", databases)
    assert _count(attempts, list_append.Ended.COMMITTED) > 100


def _configure_quick(lake: tailrace.Lake, **more: timedelta) -> None:
    from datetime import timedelta

    configure(lake, commit_timeout=timedelta(seconds=2), **more)


def _count(attempts: list[list_append.Attempt], ended: list_append.Ended) -> int:
    return sum(attempt.ended is ended for attempt in attempts)


def _torment(
    writers: Writers, database: PostgresServer, proxy: Proxy, random: Random, seconds: float
) -> int:
    """Do one bad thing after the other; returns how often the database was killed."""
    databases = 0
    pause = threading.Event()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        pause.wait(random.uniform(0.2, 1.5))
        what = random.choice(["writer", "freeze", "answer", "away", "request", "database"])
        if what == "writer":
            writers.kill_one()
        elif what == "freeze":
            writers.freeze_one()
        elif what == "database" and databases < seconds / 12:
            database.kill()
            pause.wait(random.uniform(0, 1))
            database.start()
            databases += 1
        elif what == "away":  # the answer is lost, and nobody can be asked for a while
            proxy.lose, proxy.stays_away = Lose.ANSWER, True
            pause.wait(random.uniform(1, 3))
            proxy.come_back()
        elif what in ("answer", "request"):
            proxy.lose = Lose(what)
    return databases


# --- consumers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("catalog", ["postgres"])
def test_bad_consumers_under_kills_lose_and_double_nothing(lake_args: LakeArgs) -> None:
    random = Random(seeds.seed())
    settings = bad_consumers.SETTINGS
    kills = exits = number = 0
    with lake_args.connect(settings=settings) as lake:
        servers.make(lake)
        bad_consumers.make(lake)
        calm = Path(lake_args.data or "") / "calm"
        deadline = time.monotonic() + 150
        running: list[Any] = []
        while time.monotonic() < deadline:
            for child in [one for one in running if one.exitcode is not None]:
                running.remove(child)
                exits += 1
            while len(running) < 2:
                work = (lake_args, str(calm), random.randrange(2**32))
                running.append(children.start(bad_consumers.serve, *work))
            for _ in range(random.randint(1, 6)):
                servers.write(lake, number)
                number += 1
            if random.random() < 0.15:
                running.pop().kill()
                kills += 1
                bad_consumers.help_out(lake)
        calm.touch()
        for child in running:
            child.kill()
            children.join(child)
        bad_consumers.settle(lake)
        servers.check(lake)
        bad_consumers.check(lake)
    counted.count("consumers' processes killed", kills)
    counted.count("consumers that ended their process", exits)
    assert exits, "some consumer has exited"


# --- storage ------------------------------------------------------------------------------------


def test_a_storage_that_fails_stalls_cuts_and_lies_is_believed_in_nothing(
    tmp_path: Path, s3_bucket: S3Bucket
) -> None:
    random = Random(seeds.seed())
    options = {
        "access_key_id": s3_bucket.access_key,
        "secret_access_key": s3_bucket.secret_key,
        "region": s3_bucket.region,
        "allow_http": True,
        "virtual_hosted_style_request": False,
    }
    data, url = s3_bucket.url("lake"), str(tmp_path / "lake")
    plain = {**options, "endpoint": s3_bucket.endpoint}
    refused = 0
    with (
        BadStorage(s3_bucket.endpoint, random) as bad,
        tailrace.connect(url, data=data, storage_options=plain) as good,
        tailrace.connect(
            url, data=data, storage_options={**options, "endpoint": bad.endpoint}
        ) as lake,
    ):
        good.create_table("t", {"id": "bigint", "v": "string"}, primary_key="id")
        model: dict[int, str] = {}
        deadline = time.monotonic() + 180
        done = 0
        while time.monotonic() < deadline:
            before = lake.snapshot
            wanted = dict(model)
            ids = random.sample(range(60), random.randint(1, 20))
            try:
                if random.random() < 0.3:
                    lake.table("t").delete([{"id": i} for i in ids])
                    wanted = {i: v for i, v in wanted.items() if i not in ids}
                else:
                    rows = [{"id": i, "v": f"{done}" * random.randint(1, 400)} for i in ids]
                    lake.table("t").upsert(rows)
                    wanted |= {row["id"]: row["v"] for row in rows}  # type: ignore[misc]
                model = wanted
            except tailrace.TailraceError:
                refused += 1
                assert lake.snapshot == before, "what raised has done nothing"
            lake.runtime.deletes._cache.clear()
            try:
                seen = lake.table("t").to_arrow().to_pylist()
                assert {row["id"]: row["v"] for row in seen} == model
            except tailrace.TailraceError:
                refused += 1
            done += 1
        assert {row["id"]: row["v"] for row in good.table("t").to_arrow().to_pylist()} == model
        assert set(bad.done) == set(Fault), "all kinds of faults happened"
    counted.count("writes to a bad storage", done)
    counted.count("faults of a bad storage", sum(bad.done.values()))
    counted.count("errors told of a bad storage", refused)
    assert refused


# --- writers that freeze ------------------------------------------------------------------------


@pytest.mark.parametrize("catalog", ["postgres"])
@pytest.mark.parametrize(("step", "nth"), NTH_STEPS)
def test_a_writer_that_freezes_at_a_step_holds_up_nobody(
    lake_args: LakeArgs, step: str, nth: int
) -> None:
    with lake_args.connect() as lake:
        _configure_quick(lake)
        account = lake.create_table("account", {"id": "bigint", "v": "string"}, primary_key="id")
        account.append([{"id": i, "v": "old"} for i in range(100)])
        lake.create_table("log", {"n": "bigint", "text": "string"})
        freeze = (step, nth, None, signal.SIGSTOP)
        child = children.start(victim.run, lake_args, victim.told_writes, (1,), *freeze)
        pid = child.pid
        assert pid is not None
        stat = Path(f"/proc/{pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", what=step)
        before = lake.snapshot
        lake.table("log").append([{"n": 7, "text": "beside"}])
        assert lake.snapshot == before + 1
        os.kill(pid, signal.SIGCONT)
        told = children.join(child)
        rows = dict(bag(account.to_arrow()))
        happened = rows.get(10) == "new"
        assert told == (0 if happened else 7), "what it was told is so"
        assert ("extra_1" in " ".join(lake.tables())) == happened, "all of it or nothing"
        assert (11 in rows) != happened
        logged = [row["n"] for row in lake.table("log").to_arrow().to_pylist()]
        assert sorted(logged) == ([1, 7] if happened else [7])
