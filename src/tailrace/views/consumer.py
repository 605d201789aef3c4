"""The consumer `view`: keeps the stored table of a materialized view equal to its query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tailrace.arguments import show
from tailrace.errors import Action, Fix, InvalidError
from tailrace.propagation.changes import Changes
from tailrace.propagation.consumer import Consumer, JobContext, register_consumer
from tailrace.store.schema import TableInfo
from tailrace.store.transaction import Transaction
from tailrace.views.definition import name_of
from tailrace.views.jobs import VIEW
from tailrace.views.refresh.refresh import Refresh

POLICIES = ("auto", "incremental", "full")


class ViewConsumer(Consumer):
    """See the module. `lake.create_view` writes its options.

    They are `view` (its name), `query` (spelled out), `policy`, `table` (the stored one), `views`
    (the jobs of the views that the query names), `fields` (the columns that it uses, by table),
    and `replaces` (the job of the view that it replaces).
    """

    holds_sources = "views"
    shares_commits = True
    # All that it does is in the transaction: a failed range may succeed together with later ones.
    repeats_ranges = False

    def check_update(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        if {**old, "policy": ""} != {**new, "policy": ""}:
            raise InvalidError(
                "only the policy of a view can be changed", fix=Fix(Action.CREATE_VIEW_AGAIN)
            )
        check_policy(new.get("policy"))

    def columns(
        self,
        options: Mapping[str, Any],
        memory: Mapping[str, Any],  # noqa: ARG002
        source: TableInfo,
    ) -> list[str] | None:
        used = options["fields"].get(name_of(source), [])
        known = {column.name for column in source.columns}
        return [name for name in used if name in known]  # the run reports what is missing

    def run(self, changes: Changes, txn: Transaction, job: JobContext) -> str | None:
        return str(Refresh(changes, txn, job).run())


def check_policy(policy: object) -> None:
    """Raise unless it is one of the policies."""
    if policy not in POLICIES:
        raise InvalidError(f"a view's policy is one of {', '.join(POLICIES)}, not {show(policy)}")


register_consumer(VIEW, ViewConsumer())
