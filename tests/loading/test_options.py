"""Options are checked once, and an error says what they may be."""

from __future__ import annotations

import pytest

from tailrace.errors import InvalidError
from tailrace.loading.options import OnError, character, one_of, text_list, zone


def test_a_choice_is_one_of_those_there_are() -> None:
    assert one_of(OnError, "skip", "on_error") is OnError.SKIP
    with pytest.raises(InvalidError, match="expected one of abort, skip, report, not 'stop'"):
        one_of(OnError, "stop", "on_error")


@pytest.mark.parametrize(
    ("given", "taken"), [(";", ";"), ("tab", "\t"), ("\\t", "\t"), (None, None)]
)
def test_a_delimiter_is_a_character_or_the_word_tab(given: str | None, taken: str | None) -> None:
    assert character(given, "delimiter") == taken


@pytest.mark.parametrize("given", ["", ",,", "é", "\n", "\r"])
def test_other_texts_are_no_delimiter(given: str) -> None:
    with pytest.raises(InvalidError, match="expected a single ASCII character"):
        character(given, "delimiter")


def test_one_text_is_a_list_of_one() -> None:
    assert text_list("a", "columns") == ("a",)
    assert text_list(iter(["a", "b"]), "columns") == ("a", "b")
    assert text_list(None, "columns") is None


@pytest.mark.parametrize("given", ["Berlin", "", "../etc/passwd", "Europe"])
def test_a_zone_has_to_exist(given: str) -> None:
    assert zone("Europe/Berlin") == "Europe/Berlin"
    with pytest.raises(InvalidError, match="there is no time zone"):
        zone(given)
