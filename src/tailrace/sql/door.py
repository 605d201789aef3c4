"""What the language needs of a lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tailrace.propagation.jobs import Jobs
from tailrace.store.runtime import Runtime
from tailrace.store.table import Table
from tailrace.store.transaction import Transaction
from tailrace.views.refresh.explain import Explanation
from tailrace.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.indexes.index import Index


class Door(Protocol):
    """A lake, as statements see it."""

    jobs: Jobs

    @property
    def runtime(self) -> Runtime: ...
    @property
    def spark(self) -> SparkSession: ...
    def transaction(self) -> Transaction: ...
    def schemas(self) -> list[str]: ...
    def tables(self, at: int | None = None) -> list[str]: ...
    def table(self, name: str) -> Table: ...
    def snapshots(self) -> Sequence[Any]: ...
    def create_schema(self, name: str) -> int: ...
    def drop_schema(self, name: str) -> int: ...
    def create_table(
        self, name: str, columns: Any, *, primary_key: Iterable[str] | str | None = None
    ) -> Table: ...
    def drop_table(self, name: str, *, cascade: bool = False) -> int: ...
    def views(self) -> list[str]: ...
    def view(self, name: str) -> View: ...
    def create_view(
        self,
        name: str,
        query: str,
        *,
        trigger: str | Mapping[str, Any] | None = None,
        policy: str = "auto",
        priority: int = 0,
        replace: bool = False,
    ) -> View: ...
    def drop_view(self, name: str, *, cascade: bool = False) -> None: ...
    def explain(self, query: str, *, policy: str = "auto") -> Explanation: ...
    def add_index(
        self,
        txn: Transaction,
        table: str,
        name: str,
        *,
        using: str,
        columns: Sequence[str] | str,
        options: Mapping[str, Any] | None = None,
        trigger: str | Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> None: ...
    def index(self, table: str, name: str) -> Index: ...
    def find_index(self, name: str) -> Index: ...
    def indexes(self, table: str | None = None) -> list[Index]: ...
    def drop_index(self, table: str, name: str) -> None: ...
