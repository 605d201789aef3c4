"""What an error means for a job."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest

from tailrace import errors
from tailrace.propagation import retry
from tailrace.settings import Settings

SETTINGS = Settings(retry_first=timedelta(seconds=5), retry_longest=timedelta(minutes=10))


class AnalysisException(Exception):  # noqa: N818  (as Spark's is called)
    pass


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UnavailableError("away"), retry.UNAVAILABLE),
        (errors.CommitUnknownError("who knows"), retry.UNAVAILABLE),
        (errors.ConflictError("another was faster"), retry.CONFLICT),
        (TimeoutError(), retry.TIMED_OUT),
        (ConnectionResetError(), retry.UNAVAILABLE),
        (errors.InvalidError("no"), retry.INVALID),
        (errors.CorruptError("broken"), retry.CORRUPT),
        (retry.SourceGoneError("gone"), retry.SOURCE_GONE),
        (AnalysisException(), retry.INVALID),
        (KeyError("id"), retry.UNKNOWN),
    ],
)
def test_a_code_follows_from_the_class(error: Exception, code: int) -> None:
    assert retry.code_of(error) == code
    assert retry.is_permanent(code) == (code >= 10_000)


def test_an_unknown_error_is_permanent_when_it_has_come_too_often() -> None:
    limit = SETTINGS.retry_limit
    assert retry.final_code(retry.UNKNOWN, limit - 1, SETTINGS) == retry.UNKNOWN
    assert retry.final_code(retry.UNKNOWN, limit, SETTINGS) == retry.TOO_OFTEN
    assert retry.final_code(retry.CONFLICT, limit, SETTINGS) == retry.CONFLICT


def test_pauses_double_up_to_the_longest() -> None:
    def pause(tries: int, error: Exception | None = None) -> float:
        return retry.pause(tries, SETTINGS, Random(1), error).total_seconds() / factor

    factor = Random(1).uniform(0.8, 1.2)
    assert [round(pause(tries), 3) for tries in (1, 2, 3)] == [5, 10, 20]
    assert round(pause(1000)) == 600
    # A catalog that is away for the first time is soon back.
    assert round(pause(1, errors.UnavailableError("away")), 3) == 1
    assert round(pause(2, errors.UnavailableError("away")), 3) == 10


def test_a_message_is_text_that_any_catalog_takes() -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert retry.message_of(ValueError("a\0b \ud800")) == "ValueError: ab ?"
    assert retry.message_of(SpeechlessError()) == "SpeechlessError: it does not say what happened"
    assert len(retry.message_of(ValueError("x" * 10_000))) == 4000
