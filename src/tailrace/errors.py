"""The errors that Tailrace raises, told apart by what the caller does next, and how to fix them.

Each survives pickling, because errors cross the border between Spark's workers and the driver.

An error is raised far below the doors, and does not know whether its reader writes Python, SQL or
command lines. So what to do about it is a value, a `Fix`; `sql.diagnostics` and `cli.printing` word
it for their users, and `in_python`, here, for everybody else. A door without words of its own for
an action uses the plain ones, which belong to no language.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum


class Action(Enum):
    """What to do, in plain words."""

    LIST_TABLES = "list the tables to see what there is"
    LIST_VIEWS = "list the views to see what there is"
    LIST_TABLES_AND_VIEWS = "list the tables and the views to see what there is"
    LIST_INDEXES = "list the indexes to see what there is"
    LIST_JOBS = "list the jobs to see what there is"
    LIST_TASKS = "list the tasks to see what there is"
    SHOW_RETENTION = "the lake's snapshot_retention says how long they are kept"
    CREATE_SCHEMA = "create the schema {name}"
    CREATE_ANOTHER_SCHEMA = "create another, and name it before the table"
    UPSERT = "upsert to replace rows"
    READ_VIEW = "read it as a view"
    DROP_VIEW = "drop it as a view"
    DROP_READERS_FIRST = "drop them first, or all together"
    REPLACE_VIEW = "replace it to build it anew"
    CREATE_VIEW_AGAIN = "create it again, in place of the old one"
    BUILD_VIEW = "refresh it first"
    RESUME_VIEW = "resume its job first"
    BUILD_INDEX = "its job builds it as soon as the lake is served"
    LET_INDEX_CATCH_UP = "let it catch up, or search what it has"
    SEARCH_LATEST = "search as of the latest commit, or let the index catch up"
    REBUILD_INDEX = "rebuild the index"
    GIVE_DIMENSION = "say how long they will be, with the option dimension"
    ASK_FOR_OUTCOME = "before trying again, look whether its changes are there"
    CHOOSE_PORT = "choose another port or host"
    GIVE_DATA = "say where its objects go: a directory or s3://bucket/…"
    LEAVE_DATA_OUT = "leave the place of the objects out, or give the same one"
    CHECK_STORAGE_OPTIONS = "check the storage's options ({name})"
    HIDE_CREDENTIALS = "credentials go into the storage's options or the environment"
    SKIP_HEADER = "say that there is no header"
    NAME_REPORT = "give both or neither"
    LEAVE_OPTION_OUT = "the option {name} needs one"
    CHANGE_OPTION = "change the option {name}"
    LEAVE_ROWS_OUT = "fix the rows, or load the others"


@dataclass(frozen=True)
class Fix:
    """What to do, and about what."""

    action: Action
    name: str = ""  # of a schema, a view, an index, a transaction or an option
    of: str = ""  # the table of an index, the value of an option

    def worded(self, words: Mapping[Action, str]) -> str:
        """The fix in a door's words for the actions, or in plain ones."""
        return words.get(self.action, self.action.value).format(name=self.name, of=self.of)


# How a front door words a fix.
Words = Callable[[Fix], str]

_PYTHON = {
    Action.LIST_TABLES: "lake.tables() lists what there is",
    Action.LIST_VIEWS: "lake.views() lists what there is",
    Action.LIST_TABLES_AND_VIEWS: "lake.tables() and lake.views() list what there is",
    Action.LIST_INDEXES: "lake.indexes() lists what there is",
    Action.LIST_JOBS: "lake.jobs.list() shows all",
    Action.LIST_TASKS: "lake.tasks() shows the last",
    Action.SHOW_RETENTION: ("lake.configuration.snapshot_retention says how long they are kept"),
    Action.CREATE_SCHEMA: "lake.create_schema({name!r})",
    Action.CREATE_ANOTHER_SCHEMA: (
        "create another with lake.create_schema(…), and name it before the table"
    ),
    Action.UPSERT: "use upsert to replace rows",
    Action.READ_VIEW: "lake.view({name!r})",
    Action.DROP_VIEW: "use drop_view",
    Action.DROP_READERS_FIRST: "drop them first, or all together with cascade=True",
    Action.REPLACE_VIEW: "replace=True builds it anew",
    Action.CREATE_VIEW_AGAIN: "create it again with replace=True",
    Action.BUILD_VIEW: "refresh() it first, or let serve() do it",
    Action.RESUME_VIEW: "lake.jobs.resume({name!r}, {of!r}) first",
    Action.BUILD_INDEX: "index.wait() waits for it, and does the work if nobody serves the lake",
    Action.LET_INDEX_CATCH_UP: (
        "index.wait() lets it catch up, and Settings.tail_rows is the limit; "
        'freshness="indexed" or stale_ok=True takes what it has'
    ),
    Action.SEARCH_LATEST: (
        'freshness="latest" searches the table as it is; index.wait() builds it anew'
    ),
    Action.REBUILD_INDEX: "index.rebuild() makes the index anew",
    Action.GIVE_DIMENSION: 'say how long they will be, with options={{"dimension": 128}}',
    Action.ASK_FOR_OUTCOME: "before trying again, ask lake.outcome({name!r})",
    Action.CHOOSE_PORT: "choose another: lake.serve(port=…, host=…)",
    Action.GIVE_DATA: "give data=, a directory or s3://bucket/…",
    Action.LEAVE_DATA_OUT: "leave data= out, or give the same place",
    Action.CHECK_STORAGE_OPTIONS: "check storage_options ({name})",
    Action.HIDE_CREDENTIALS: "credentials go into storage_options or the environment",
    Action.SKIP_HEADER: "say header=False",
    Action.NAME_REPORT: "give report= and on_error='report', or neither",
    Action.LEAVE_OPTION_OUT: "{name}={of!r} needs one",
    Action.CHANGE_OPTION: "change {name}",
    Action.LEAVE_ROWS_OUT: "fix the rows, or load the others with on_error='skip' or 'report'",
}


def in_python(fix: Fix) -> str:
    """A fix for those who call methods."""
    return fix.worded(_PYTHON)


def in_plain_words(fix: Fix) -> str:
    """A fix for a text that is kept, and read at any door."""
    return fix.worded({})


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
