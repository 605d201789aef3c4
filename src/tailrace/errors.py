"""The errors that Tailrace raises, told apart by what the caller does next.

Each survives pickling, because errors cross the border between Spark's workers and the driver.
What to do about one is a value (`fixes`); `str(error)` words it for Python, or for the front door
that the error came through.
"""

from __future__ import annotations

from tailrace.fixes import Action, Fix, Words, in_python


class TailraceError(Exception):
    """The root of every error that Tailrace raises on purpose."""

    # What to do about it, if that depends on the reader's language.
    fix: Fix | None = None
    # What is wrong, to those who called a method: others did not, though their statement did.
    for_callers: str = ""
    _words: Words | None = None

    def __init__(self, *args: object, fix: Fix | None = None, for_callers: str = "") -> None:
        super().__init__(*args)
        self.fix, self.for_callers = fix, for_callers

    @property
    def problem(self) -> str:
        """What is wrong, without the fix."""
        return super().__str__()

    def said(self, words: Words) -> str:
        """The whole message, with the fix in these words."""
        problem = self.for_callers if self.for_callers and words is in_python else self.problem
        if self.fix is None:
            return problem
        if "\n" in problem:
            return f"{problem}\n{words(self.fix)}"
        mark = ";" if ": " in problem else ":"
        return f"{problem}{mark} {words(self.fix)}"

    def use(self, words: Words) -> None:
        """Have `str(error)` use a front door's words. Of several doors, the first counts."""
        self._words = self._words or words

    def __str__(self) -> str:
        return self.said(self._words or in_python)


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
        super().__init__(transaction_id, fix=Fix(Action.ASK_FOR_OUTCOME, transaction_id))
        self.transaction_id = transaction_id

    @property
    def problem(self) -> str:
        return (
            f"the catalog went away during the commit of the transaction {self.transaction_id}, "
            "and it is not known whether it happened"
        )


class CorruptError(TailraceError):
    """Stored data is missing or damaged; the message names the object."""


class JobFailedError(TailraceError):
    """One or more jobs still fail; the message names them."""
