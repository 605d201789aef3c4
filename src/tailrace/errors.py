"""The errors that Tailrace raises, told apart by what the caller does next.

Each survives pickling, because errors cross the border between Spark's workers and the driver.
"""

from __future__ import annotations


class TailraceError(Exception):
    """The root of every error that Tailrace raises on purpose."""


class InvalidError(TailraceError):
    """The request cannot be carried out as it stands: fix the input."""


class NotFoundError(TailraceError):
    """The named object does not exist (at that snapshot)."""


class ConflictError(TailraceError):
    """Another transaction was first: run the whole transaction again."""


class UnavailableError(TailraceError):
    """A server or a lock did not answer in time: try again later."""


class CommitUnknownError(TailraceError):
    """The answer to a commit was lost, and the catalog cannot be asked: ask before trying again.

    `lake.outcome(error.transaction_id)` says whether it happened, once the catalog is back.
    """

    def __init__(self, transaction_id: str) -> None:
        super().__init__(transaction_id)
        self.transaction_id = transaction_id

    def __str__(self) -> str:
        return (
            f"the catalog went away during the commit of the transaction {self.transaction_id}, "
            "and it is not known whether it happened: before trying again, ask "
            f"lake.outcome({self.transaction_id!r})"
        )


class CorruptError(TailraceError):
    """Stored data is missing or damaged; the message names the object."""


class JobFailedError(TailraceError):
    """One or more jobs still fail; the message names them."""
