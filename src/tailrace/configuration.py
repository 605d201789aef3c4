"""What holds for a whole lake, whoever opens it: how long it keeps things and waits for them.

It lives in the catalog. The lake's owner, the default tenant, changes it with `lake.configure`;
a process's own settings cannot override it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

from tailrace.arguments import show
from tailrace.errors import InvalidError


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Read with `lake.configuration`, changed with `lake.configure(…)`."""

    # How long snapshots are kept for time travel and change feeds; those that a job or a running
    # transaction still needs stay longer.
    snapshot_retention: timedelta = timedelta(days=7)
    # How long an object outlives its removal from the catalog, for readers that still run.
    object_grace: timedelta = timedelta(hours=1)
    # A transaction whose heartbeat is older than this is dead: it can no longer commit.
    transaction_timeout: timedelta = timedelta(minutes=15)
    # How long a writer that holds the commit lock may be silent before PostgreSQL ends its
    # commit, so that one that hangs cannot stop the others. Less than they wait for the lock.
    commit_timeout: timedelta = timedelta(seconds=20)
    # A node that has not been heard of for this long is gone: others take over what it ran.
    node_timeout: timedelta = timedelta(seconds=20)
    # How long iterations are kept one by one; then they are added up by tenant and day. Also how
    # long tasks that have ended are kept.
    history_retention: timedelta = timedelta(days=7)
    # How long the row of a dropped job is kept.
    drop_retention: timedelta = timedelta(days=1)
    # The most history that a job may ask for with `"retention"` in its spec: all keep it then.
    longest_retention: timedelta = timedelta(days=30)


# Below these, healthy work would be taken for dead, or lose the history that it reads.
FLOORS = {
    "snapshot_retention": timedelta(0),
    "object_grace": timedelta(minutes=1),
    "transaction_timeout": timedelta(minutes=1),
    "commit_timeout": timedelta(seconds=2),
    "node_timeout": timedelta(seconds=5),
    "history_retention": timedelta(0),
    "drop_retention": timedelta(minutes=1),
    "longest_retention": timedelta(0),
}
LONGEST = timedelta(days=36_500)


def changed(now: Configuration, changes: Mapping[str, Any]) -> Configuration:
    """The configuration with some values changed, if they are valid."""
    names = [field.name for field in fields(now)]
    for name, value in changes.items():
        if name not in names:
            raise InvalidError(
                f"a lake has no configuration {show(name)}: there are {', '.join(names)}"
            )
        if not isinstance(value, timedelta):
            raise InvalidError(f"{name} takes a timedelta, not {show(value)}")
        if not FLOORS[name] <= value <= LONGEST:
            raise InvalidError(
                f"{name} has to be between {FLOORS[name]} and {LONGEST}, not {value}: "
                "others depend on it"
            )
    return replace(now, **changes)
