"""What to do about an error, for those who type commands."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

from tailrace.errors import TailraceError
from tailrace.fixes import Action, Fix

_COMMANDS = {
    Action.LIST_TABLES: "tailrace tables lists what there is",
    Action.LIST_VIEWS: "tailrace views lists what there is",
    Action.LIST_TABLES_AND_VIEWS: "tailrace tables and tailrace views list what there is",
    Action.LIST_INDEXES: "tailrace indexes lists what there is",
    Action.LIST_JOBS: "tailrace jobs shows all",
    Action.SHOW_RETENTION: (
        "tailrace configure shows how long they are kept, as snapshot_retention"
    ),
    Action.CREATE_SCHEMA: "create it first, with tailrace sql",
    Action.CREATE_ANOTHER_SCHEMA: (
        "create another with tailrace sql, and name it before the table"
    ),
    Action.READ_VIEW: "tailrace sql reads it",
    Action.CREATE_VIEW_AGAIN: "replace it, with tailrace sql",
    Action.BUILD_VIEW: "tailrace refresh {name} builds it",
    Action.RESUME_VIEW: "resume its job first, with tailrace sql",
    Action.BUILD_INDEX: "tailrace refresh builds it now",
    Action.LET_INDEX_CATCH_UP: (
        "tailrace refresh lets it catch up; without --latest, a search takes what it has"
    ),
    Action.SEARCH_LATEST: (
        "--latest searches the table as it is; tailrace refresh builds the index anew"
    ),
    Action.REBUILD_INDEX: "refresh the index in full, with tailrace sql",
    Action.ASK_FOR_OUTCOME: (
        "before trying again, look with tailrace snapshots whether its changes are there"
    ),
    Action.CHOOSE_PORT: "choose another with --port or --host",
    Action.GIVE_DATA: "give --data, a directory or s3://bucket/…",
    Action.LEAVE_DATA_OUT: "leave --data out, or give the same place",
    Action.CHECK_STORAGE_OPTIONS: (
        "check the credentials in the environment (AWS_ACCESS_KEY_ID, …)"
    ),
    Action.HIDE_CREDENTIALS: "credentials go into the environment (AWS_ACCESS_KEY_ID, …)",
    Action.SKIP_HEADER: "add --no-header",
    Action.NAME_REPORT: "give --report and --on-error report, or neither",
    Action.LEAVE_OPTION_OUT: "--{name} {of} needs one",
    Action.CHANGE_OPTION: "change --{name}",
    Action.LEAVE_ROWS_OUT: "fix the rows, or load the others with --on-error skip or report",
}


def in_commands(fix: Fix) -> str:
    """A fix as a command, or as an option of one."""
    is_option = fix.action in (Action.LEAVE_OPTION_OUT, Action.CHANGE_OPTION)
    name = fix.name.replace("_", "-") if is_option else fix.name
    return replace(fix, name=quote(name), of=quote(fix.of)).worded(_COMMANDS)


def message_of(error: Exception) -> str:
    """What an error says on the command line; one that comes from a statement speaks SQL."""
    if isinstance(error, TailraceError):
        error.use(in_commands)
    return str(error)
