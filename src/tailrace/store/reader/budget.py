"""Here or on Spark: what a read costs, and how much of that this process takes on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tailrace.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a read takes, by the catalog and the delete files alone."""

    rows: int  # held in memory in the end
    size: int  # about how many bytes of Parquet they are in
    # Rows decoded to find them, a row group at a time; 0 if every row that is decoded is held.
    searched: int = 0

    @property
    def decoded(self) -> int:
        """How many rows are decoded."""
        return max(self.rows, self.searched)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much this process reads itself before Spark is asked."""

    rows: int
    size: int
    searched: int

    @staticmethod
    def of(settings: Settings) -> Budget:
        """For rows that are handed on as a whole, to a caller or to Spark."""
        return Budget(
            rows=settings.local_rows, size=settings.local_bytes, searched=settings.local_keys
        )

    def for_rows(self, rows: int) -> Budget:
        """The same for so many rows: whoever goes on with them in this process can hold more."""
        return replace(self, rows=rows)

    def covers(self, cost: Cost) -> bool:
        """Whether a read is done here."""
        fits = cost.rows <= self.rows and cost.size <= self.size
        return fits and (not cost.searched or self.covers_search(cost.searched))

    def covers_search(self, rows: int) -> bool:
        """Whether so many rows are looked at here, a row group at a time."""
        return rows <= self.searched
