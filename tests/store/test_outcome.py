"""A commit's outcome is known, or said to be unknown; and what was done once is not done twice."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.store import tables as t
from tests.support import children, victim
from tests.support.lakes import LakeArgs
from tests.support.process import wait_until
from tests.support.proxy import Lose, Proxy, proxy_to
from tests.support.rows import column

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = {"id": "bigint"}
QUICK = tailrace.Settings(lock_timeout=timedelta(milliseconds=500))


@pytest.fixture
def place(postgres_url: str, tmp_path: Path) -> LakeArgs:
    return LakeArgs(catalog="postgres", url=postgres_url, data=str(tmp_path / "data"))


@pytest.fixture
def proxy(place: LakeArgs) -> Iterator[Proxy]:
    port = sa.make_url(place.url).port
    assert port is not None
    with proxy_to(port) as made:
        yield made


def through(place: LakeArgs, proxy: Proxy) -> str:
    """The lake's address by way of the proxy."""
    return sa.make_url(place.url).set(port=proxy.port).render_as_string(hide_password=False)


@pytest.fixture
def lake(place: LakeArgs, proxy: Proxy) -> Iterator[tailrace.Lake]:
    """A lake behind the proxy, with a table `t` that has no key."""
    place.connect().close()
    with tailrace.connect(through(place, proxy)) as opened:
        opened.create_table("t", COLUMNS)
        yield opened


def ids(lake: tailrace.Lake) -> list[int]:
    return column(lake.table("t").to_arrow(), "id")


# --- an answer that is lost ---------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_returns_its_snapshot(
    lake: tailrace.Lake, proxy: Proxy
) -> None:
    before = lake.snapshot
    # From here on, the next COMMIT is the one that counts.
    txn = lake.transaction()
    txn.table("t").append([{"id": 1}])
    proxy.lose = Lose.ANSWER
    assert txn.commit() == before + 1 == lake.snapshot
    assert proxy.lose is Lose.NOTHING, "an answer was lost"
    assert ids(lake) == [1]
    assert lake.outcome(txn.id) == before + 1
    assert lake.sweep() == tailrace.Sweep(deleted=0, expired=0)


def test_a_commit_that_never_arrived_is_said_not_to_have_happened(
    lake: tailrace.Lake, proxy: Proxy
) -> None:
    before = lake.snapshot
    txn = lake.transaction()
    txn.table("t").append([{"id": 1}])
    proxy.lose = Lose.REQUEST
    with pytest.raises(tailrace.UnavailableError):
        txn.commit()
    assert lake.snapshot == before
    assert lake.outcome(txn.id) is None
    lake.table("t").append([{"id": 1}])
    assert ids(lake) == [1]
    assert list(lake.runtime.storage.list()) == [
        path for path in lake.runtime.storage.list() if txn.id not in path
    ], "its objects are gone"


@pytest.mark.parametrize("lost", [Lose.ANSWER, Lose.REQUEST])
def test_where_the_catalog_cannot_be_asked_the_outcome_is_said_to_be_unknown(
    place: LakeArgs, lake: tailrace.Lake, proxy: Proxy, lost: Lose
) -> None:
    with tailrace.connect(through(place, proxy), settings=QUICK) as other:
        txn = other.transaction()
        txn.table("t").append([{"id": 1}])
        proxy.lose, proxy.stays_away = lost, True
        with pytest.raises(tailrace.CommitUnknownError, match=r"lake\.outcome\(") as caught:
            txn.commit()
        assert pickle.loads(pickle.dumps(caught.value)).transaction_id == txn.id
        proxy.come_back()
        done = other.outcome(caught.value.transaction_id)
    assert (done is not None) == (lost is Lose.ANSWER)
    assert ids(lake) == ([1] if done else [])


def test_a_job_whose_registration_got_no_answer_is_registered(
    lake: tailrace.Lake, proxy: Proxy
) -> None:
    proxy.lose = Lose.ANSWER
    lake.jobs.register("t", "job", {"consumer": {"kind": "somebody's"}})  # no table, no object
    assert proxy.lose is Lose.NOTHING
    assert [job.name for job in lake.jobs.list()] == ["job"]


def test_an_iteration_whose_answer_was_lost_has_succeeded_once(
    lake: tailrace.Lake, proxy: Proxy
) -> None:
    lake.create_table("u", COLUMNS, primary_key="id").append([{"id": 1}])
    lake.jobs.register("u", "copy", {"consumer": {"kind": "replica", "table": "copy"}})
    from tailrace.propagation.bundle import Bundle

    commit = Bundle._commit

    def losing(self: Any, *arguments: Any) -> Any:
        proxy.lose = Lose.ANSWER
        return commit(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bundle, "_commit", losing)
        lake.run_until_fresh()
    assert proxy.lose is Lose.NOTHING
    assert column(lake.table("copy").to_arrow(), "id") == [1]
    assert [done.error for done in lake.jobs.history("u", "copy")] == [None]


def test_a_tenant_is_not_told_what_became_of_others_transactions(
    place: LakeArgs, lake: tailrace.Lake
) -> None:
    with lake.transaction() as txn:
        txn.table("t").append([{"id": 1}])
    with place.connect(tenant="acme") as other:
        assert other.outcome(txn.id) is None
    assert lake.outcome(txn.id) == txn.snapshot


# --- a writer that hangs ------------------------------------------------------------------------


def test_a_writer_that_freezes_with_the_lock_is_put_out_and_cannot_commit(place: LakeArgs) -> None:
    with place.connect() as lake:
        account = lake.create_table("account", {"id": "bigint", "v": "string"}, primary_key="id")
        account.append([{"id": 11, "v": "old"}])
        log = lake.create_table("log", {"n": "bigint", "text": "string"})
        lake.configure(commit_timeout=timedelta(seconds=2))
        freeze = ("rows written", 1, None, signal.SIGSTOP)
        child = children.start(victim.run, place, victim.told_writes, (1,), *freeze)
        assert child.pid is not None
        wait_until(lambda: _is_stopped(child.pid), what="the writer to freeze")
        before = lake.snapshot
        # This one waits for the lock; the server takes it from the other.
        log.append([{"n": 2, "text": "beside"}])
        assert lake.snapshot == before + 1
        os.kill(child.pid, signal.SIGCONT)
        assert children.join(child) == 7, "it was told that its commit failed"
        assert column(log.to_arrow(), "n") == [2]
        assert column(account.to_arrow(), "id") == [11]


def _is_stopped(pid: int | None) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# --- idempotency keys ---------------------------------------------------------------------------


@pytest.fixture
def keyed(lake_args: LakeArgs) -> Iterator[tailrace.Lake]:
    with lake_args.connect() as opened:
        opened.create_table("t", COLUMNS, primary_key="id")
        yield opened


def add(lake: tailrace.Lake, key: str, *numbers: int) -> tailrace.Transaction:
    with lake.transaction(idempotency_key=key) as txn:
        txn.table("t").append([{"id": number} for number in numbers])
    return txn


def test_a_key_that_was_seen_before_returns_the_snapshot_of_then(keyed: tailrace.Lake) -> None:
    first = add(keyed, "batch 1", 1, 2)
    keyed.table("t").delete("id = 2")
    newest = keyed.snapshot
    again = add(keyed, "batch 1", 1, 2)
    assert not first.is_repeat
    assert again.is_repeat
    assert again.snapshot == first.snapshot < newest == keyed.snapshot
    assert ids(keyed) == [1]
    assert add(keyed, "batch 2", 3).snapshot == newest + 1
    assert keyed.sweep() == tailrace.Sweep(deleted=0, expired=0)


def test_of_two_with_one_key_at_once_one_commits(keyed: tailrace.Lake) -> None:
    keyed.create_table("free", COLUMNS)
    for name in ("t", "free"):  # with a key, the second finds the first's rows in its way
        begun = [keyed.transaction(idempotency_key=name) for _ in range(2)]
        for txn in begun:
            txn.table(name).append([{"id": 1}])
        assert begun[0].commit() == begun[1].commit() == keyed.snapshot
        assert keyed.table(name).to_arrow().num_rows == 1
    assert keyed.sweep() == tailrace.Sweep(deleted=0, expired=0)


def test_many_threads_with_one_key_write_once(keyed: tailrace.Lake) -> None:
    keyed.create_table("free", COLUMNS)
    snapshots = set()

    def work() -> None:
        with keyed.transaction(idempotency_key="k") as txn:
            txn.table("free").append([{"id": 1}])
        snapshots.add(txn.snapshot)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(snapshots) == 1
    assert keyed.table("free").to_arrow().num_rows == 1


def test_tables_made_under_a_key_are_made_once(keyed: tailrace.Lake) -> None:
    for _ in range(2):
        with keyed.transaction(idempotency_key="setup") as txn:
            txn.create_schema("sales")
            txn.create_table("sales.orders", COLUMNS).append([{"id": 1}])
    assert keyed.table("sales.orders").to_arrow().num_rows == 1


def test_tenants_have_keys_of_their_own(lake_args: LakeArgs) -> None:
    with lake_args.connect() as lake, lake_args.connect(tenant="acme") as other:
        other.create_schema("acme")
        for one, name in ((lake, "t"), (other, "acme.t")):
            with one.transaction(idempotency_key="k") as txn:
                txn.create_table(name, COLUMNS)
            assert not txn.is_repeat


@pytest.mark.parametrize("key", ["", "x" * 256, 7, b"k"])
def test_a_key_is_a_short_text(keyed: tailrace.Lake, key: Any) -> None:
    with pytest.raises(tailrace.InvalidError, match="1 to 255 characters"):
        keyed.transaction(idempotency_key=key)


def test_a_key_whose_history_is_gone_is_not_taken_for_a_new_one(keyed: tailrace.Lake) -> None:
    add(keyed, "k", 1)
    keyed.table("t").append([{"id": 2}])
    keyed.configure(snapshot_retention=timedelta(0))
    keyed.purge()
    with pytest.raises(tailrace.InvalidError, match="was used long ago"):
        add(keyed, "k", 1)
    assert ids(keyed) == [1, 2]


def test_outcomes_go_with_the_history_but_not_at_once(keyed: tailrace.Lake) -> None:
    def kept() -> int:
        with keyed.runtime.database.read() as connection:
            query = sa.select(sa.func.count()).select_from(t.commit)
            return int(connection.execute(query).scalar_one())

    keyed.configure(snapshot_retention=timedelta(0))
    add(keyed, "k", 1)
    keyed.purge()
    assert kept() == 2
    long_ago = keyed.runtime.clock.now() - timedelta(days=2)
    with keyed.runtime.database.write() as connection:
        connection.execute(sa.update(t.commit).values(committed_at=long_ago))
    keyed.table("t").append([{"id": 2}])
    keyed.purge()
    assert kept() == 1
