"""What an error means for a job: pass by itself, or wait for a person.

Codes up to 9999 are temporary and are tried again after a pause that doubles; from 10000 on they
are permanent. An error that is not known may be either: it is temporary until it has happened too
often in a row.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from tailrace import errors
from tailrace.settings import Settings

UNAVAILABLE, CONFLICT, TIMED_OUT, TRIGGER, UNKNOWN = 1, 2, 3, 4, 999
PERMANENT = 10_000
# A catalog or a storage that did not answer once may have been restarted, and answers again.
SOON = timedelta(seconds=1)
INVALID, NOT_FOUND, CORRUPT, SOURCE_GONE, TOO_OFTEN = 10_001, 10_002, 10_003, 10_010, 10_999


class SourceGoneError(errors.NotFoundError):
    """A source of the job was dropped, or replaced by another table of its name."""

    code = SOURCE_GONE


_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.UnavailableError, UNAVAILABLE),
    # If it did happen, the job has moved on, and nothing is entered as failed.
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
    # By name, because a Spark session may be classic or Connect, and is not imported here.
    if any(kind.__name__ == "AnalysisException" for kind in type(error).__mro__):
        return INVALID
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNKNOWN)


def message_of(error: BaseException) -> str:
    """What is kept of an error: text that any catalog can store."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  (a user's class: its own mistake must not hide the error)
        said = "it does not say what happened"
    text = f"{type(error).__name__}: {said}".strip()[:4000]
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def final_code(code: int, tries: int, settings: Settings) -> int:
    """The code, unless an unknown error has come too often."""
    return TOO_OFTEN if code == UNKNOWN and tries >= settings.retry_limit else code


def is_permanent(code: int) -> bool:
    """Whether a person has to do something."""
    return code >= PERMANENT


def pause(
    tries: int, settings: Settings, random: Random, error: BaseException | None = None
) -> timedelta:
    """How long to wait after so many failures in a row, of which this was the last."""
    first = settings.retry_first
    away = errors.UnavailableError | errors.CommitUnknownError
    if tries <= 1 and isinstance(error, away):
        first = min(first, SOON)
    # The exponent is bounded, because a float is.
    doubled = first * 2 ** min(max(tries - 1, 0), 40)
    longest: timedelta = min(doubled, settings.retry_longest)
    return longest * random.uniform(0.8, 1.2)


def source_gone(label: str) -> str:
    """What a job whose source was dropped is told."""
    return (
        f"a source of {label} was dropped, or replaced by another table of the same name: "
        "register the job again"
    )
