"""How much a small change asks of the catalog: counted, and held to what it was built for."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

import tailrace
from tailrace.catalog import postgres
from tests.support import small_shop
from tests.support.lakes import configure
from tests.support.proxy import proxy_to
from tests.support.round_trips import Counter
from tests.support.small_shop import SmallShop
from tests.support.steps import stepped_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.lakes import LakeArgs

VIEWS = {"a filter": small_shop.FILTER, "a join with sums": small_shop.JOIN}


Counted = tuple[SmallShop, Counter]


@pytest.fixture
def shop(lake_args: LakeArgs, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """A shop, and what is asked of its catalog."""
    # On a slow machine a connection may seem to have been idle, and is checked.
    monkeypatch.setattr(postgres, "_IDLE", 3600.0)
    with ExitStack() as stack:
        url, proxy = lake_args.url, None
        if lake_args.catalog == "postgres":
            port = sa.make_url(url).port
            assert port is not None
            proxy = stack.enter_context(proxy_to(port))
            through = sa.make_url(url).set(port=proxy.port)
            url = through.render_as_string(hide_password=False)
        lake = stack.enter_context(tailrace.connect(url, data=lake_args.data))
        # No heartbeat comes in between, however long it takes.
        long = timedelta(days=1)
        configure(lake, node_timeout=long, transaction_timeout=long)
        yield SmallShop(lake, orders=2000, customers=100), Counter(lake, proxy)


# Each transaction under the lock also asks for the catalog's version.
# Of a commit and a refresh of which no file ends; one of which a file loses its last row takes two
# more, and one that finds less in memory some more; the clock may be compared with the database's.
COMMIT, REFRESH = {"sqlite": 16, "postgres": 5}, {"sqlite": 26, "postgres": 8}
MORE = 8


def test_a_small_commit_asks_little(shop: Counted, catalog: str) -> None:
    made, counter = shop
    made.commit()
    asked = []
    for _ in range(10):
        with counter.counted() as counts:
            made.commit()
        asked += counts
    assert min(asked) <= COMMIT[catalog]
    assert max(asked) <= COMMIT[catalog] + MORE


@pytest.mark.parametrize("view", VIEWS)
def test_a_small_refresh_asks_little(shop: Counted, catalog: str, view: str) -> None:
    made, counter = shop
    made.lake.create_view("v", VIEWS[view])
    with stepped_node(made.lake) as node:
        node.until_fresh()
        for _ in range(3):
            made.commit()
            assert node.step() == 1
        asked = []
        for _ in range(8):
            made.commit()
            with counter.counted() as counts:
                assert node.step() == 1
            asked += counts
    assert min(asked) <= REFRESH[catalog]
    assert max(asked) <= REFRESH[catalog] + MORE
