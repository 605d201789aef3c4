"""What an error means for a job: retry it, or wait for a person.

Codes up to 9999 are temporary: the job is retried after a pause that doubles. From 10000 on they
are permanent. An unknown error is temporary until it has happened too often in a row.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from tailrace import errors
from tailrace.errors import in_plain_words
from tailrace.settings import Settings

UNAVAILABLE, CONFLICT, TIMED_OUT, TRIGGER, UNKNOWN = 1, 2, 3, 4, 999
PERMANENT = 10_000
# A catalog or storage that did not answer may have been restarted, and be back soon.
SOON = timedelta(seconds=1)
INVALID, NOT_FOUND, CORRUPT, SOURCE_GONE, TOO_OFTEN = 10_001, 10_002, 10_003, 10_010, 10_999


class SourceGoneError(errors.NotFoundError):
    """A source of the job was dropped, or replaced by another table of its name."""

    code = SOURCE_GONE


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.UnavailableError, UNAVAILABLE),
    # If the commit did happen, the job has moved on, and no failure is entered.
    (errors.CommitUnknownError, UNAVAILABLE),
    (errors.ConflictError, CONFLICT),
    (errors.InvalidError, INVALID),
    (errors.NotFoundError, NOT_FOUND),
    (errors.CorruptError, CORRUPT),
    (TimeoutError, TIMED_OUT),
    (ConnectionError, UNAVAILABLE),
)


def code_of(error: BaseException) -> int:
    """The code of an error, by its class."""
    own = getattr(error, "code", None)
    if isinstance(error, errors.TailraceError) and isinstance(own, int):
        return own
    # By name: it is another class on Connect, and Spark is not imported here.
    if any(kind.__name__ == "AnalysisException" for kind in type(error).__mro__):
        return INVALID
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNKNOWN)


def message_of(error: BaseException) -> str:
    """An error as text that any catalog can store."""
    try:
        # Plain words: it is read at every door.
        if isinstance(error, errors.TailraceError) and error.fix is not None:
            message = error.said(in_plain_words)
        else:
            message = str(error)
    except Exception:  # noqa: BLE001  (a user's class: its own mistake must not hide the error)
        message = "it does not say what happened"
    text = f"{type(error).__name__}: {message}".strip()[:4000]
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def final_code(code: int, tries: int, settings: Settings) -> int:
    """The code, or that of an unknown error that has happened too often."""
    return TOO_OFTEN if code == UNKNOWN and tries >= settings.retry_limit else code


def is_permanent(code: int) -> bool:
    """Whether a person has to do something."""
    return code >= PERMANENT


def pause(
    tries: int, settings: Settings, random: Random, error: BaseException | None = None
) -> timedelta:
    """How long to wait after so many failures in a row, the last with this error."""
    first = settings.retry_first
    away = errors.UnavailableError | errors.CommitUnknownError
    if tries <= 1 and isinstance(error, away):
        first = min(first, SOON)
    # The exponent is bounded so that the number stays finite.
    doubled = first * 2 ** min(max(tries - 1, 0), 40)
    longest: timedelta = min(doubled, settings.retry_longest)
    return longest * random.uniform(0.8, 1.2)


def source_gone(job: str) -> str:
    """The message for a job whose source was dropped."""
    return (
        f"a source of {job} was dropped, or replaced by another table of the same name: "
        "register the job again"
    )
