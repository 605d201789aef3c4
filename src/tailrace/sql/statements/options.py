"""`WITH (name = value, …)`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tailrace.sql.diagnostics import Span, did_you_mean
from tailrace.sql.parser import Parser

_HIGHEST = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """The values of options by name, and their places."""

    parser: Parser
    values: dict[str, Any]
    places: dict[str, Span]

    def check(self, known: tuple[str, ...]) -> None:
        """Raise if there is an option with another name."""
        for name, span in self.places.items():
            if name not in known:
                raise self.parser.refuse(
                    span,
                    f"there is no option {name}{did_you_mean(name, known)}",
                    hint=f"options: {', '.join(known)}",
                )

    def refuse(self, name: str, message: str, *, hint: str = "") -> Exception:
        """An error at the place of an option."""
        return self.parser.refuse(self.places[name], message, hint=hint)

    def priority(self) -> int:
        """The priority of a job."""
        given = self.values.get("priority", 0)
        if not isinstance(given, int) or isinstance(given, bool) or abs(given) > _HIGHEST:
            raise self.refuse("priority", f"a priority is a whole number, not {given!r}")
        return given

    def trigger(self) -> Any:
        """The trigger of a job, from the options `trigger` and `interval`."""
        given = self.values
        trigger = given.get("trigger", "periodic" if "interval" in given else "default")
        if not isinstance(trigger, str):
            hint = "triggers: 'default', 'greedy', 'periodic'"
            raise self.refuse("trigger", f"there is no trigger {trigger!r}", hint=hint)
        if trigger == "periodic":
            if "interval" not in given:
                raise self.refuse(
                    "trigger", "a periodic trigger needs an interval", hint="add interval = '10s'"
                )
            return {"job_type": trigger, "schedule": {"interval": given["interval"]}}
        if "interval" in given:
            raise self.refuse(
                "interval", f"the trigger {trigger!r} has no interval", hint="use 'periodic'"
            )
        return trigger


def read_options(parser: Parser) -> Options:
    """`WITH (…)`, if it is there."""
    options = Options(parser=parser, values={}, places={})
    if not parser.accept("WITH"):
        return options
    parser.expect("(")
    while True:
        given, place = parser.column("an option")
        name = given.lower()
        if name in options.values:
            raise parser.refuse(place, f"the option {name} is there twice")
        parser.expect("=")
        word = parser.word()
        if word and (word[0].isdigit() or word == "-"):
            span = parser.upto(",")
            text = parser.cut(span)
            try:
                value: Any = int(text) if text.lstrip("-").isdecimal() else float(text)
            except ValueError as error:
                raise parser.refuse(span, f"{text} is not a number") from error
        elif word in ("TRUE", "FALSE"):
            value = word == "TRUE"
            parser.expect(word)
        else:
            value = parser.string(f"the value of {name}")
        options.values[name] = value
        options.places[name] = Span(start=place.start, end=parser.last_end)
        if not parser.accept(","):
            break
    parser.expect(")")
    return options
