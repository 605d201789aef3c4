"""The arguments of public calls, checked by type and range where they come in.

`@checked` compares the arguments of a public function, or of each public method of a class, with
their annotations. One that does not fit is an InvalidError that says what is expected, and names
the argument to those who call from Python. Missing, surplus and unknown arguments stay Python's
own TypeError. `json_value` takes nested values that the catalog keeps: specs, schedules, options.
"""

from __future__ import annotations

import inspect
import math
import operator
import reprlib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from numbers import Real
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tailrace.errors import InvalidError

# The most characters of a statement, a query or a condition.
LONGEST_TEXT = 1_000_000
_LARGEST = 2**63 - 1
# The same for a name, and for one with its schema and backticks.
LONGEST_NAME, LONGEST_TABLE_NAME = 255, 1100
# Arguments that may hold a secret: messages do not repeat them.
_SECRET = frozenset({"lake", "data", "storage_options"})
_SHOWN = 60  # characters of a value, in a message
_short = reprlib.Repr()  # does not walk through a whole long list
_short.maxstring = _short.maxother = _short.maxlong = 10 * _SHOWN

Target = TypeVar("Target", bound=Callable[..., Any])


@dataclass(frozen=True)
class Between:
    """The range of a number, both ends included, and what it counts, for messages."""

    least: float
    most: float
    what: str = ""


@dataclass(frozen=True)
class Length:
    """How long a text may be, and what it is called."""

    least: int
    most: int
    what: str


# A schema, a column, an index, a job.
Name = Annotated[str, Length(1, LONGEST_NAME, "name")]
# With its schema, and backticks: `sales.orders`.
TableName = Annotated[str, Length(1, LONGEST_TABLE_NAME, "table's name")]
# The catalog says whether the snapshot exists.
SnapshotId = Annotated[int, Between(0, _LARGEST)]
TaskId = Annotated[int, Between(1, _LARGEST)]
Count = Annotated[int, Between(1, 1_000_000_000)]
Port = Annotated[int, Between(0, 65_535)]
LONGEST_TIMEOUT = 1_000_000_000
Seconds = Annotated[float, Between(0, LONGEST_TIMEOUT, "a number of seconds")]


class _MisfitError(Exception):
    """A value that does not fit, with the reason unless that is obvious."""


@dataclass(frozen=True)
class _Taker:
    """What one argument takes."""

    words: str
    take: Callable[[Any], Any]  # returns the value for the function, or raises _MisfitError


def checked(target: Target) -> Target:
    """Check the arguments of a function, or those of all public methods that a class has."""
    if inspect.isclass(target):
        owner = target.__name__.lower()
        for name, value in inspect.getmembers(target, inspect.isfunction):
            if not name.startswith("_"):
                setattr(target, name, _checked(value, f"{owner}.{name}"))
        return target
    return _checked(target, target.__name__)


def _checked(function: Target, label: str) -> Target:
    names = tuple(inspect.signature(function).parameters)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        takers = _takers(function)
        given = [_fit(label, name, value, takers) for name, value in zip(names, args, strict=False)]
        named = {name: _fit(label, name, value, takers) for name, value in kwargs.items()}
        # Python itself complains of surplus arguments.
        return function(*given, *args[len(given) :], **named)

    return cast(Target, call)


def _fit(label: str, name: str, value: Any, takers: Mapping[str, _Taker]) -> Any:
    taker = takers.get(name)
    if taker is None:
        return value
    try:
        return taker.take(value)
    except _MisfitError as misfit:
        shown = f"a {type(value).__name__}" if name in _SECRET else show(value)
        reason = f" ({misfit})" if str(misfit) else ""
        expected = f"{taker.words}, not {shown}{reason}"
        call = f"{label}({name}=…) takes {expected}"
        raise InvalidError(f"expected {expected}", for_callers=call) from None


def show(value: object) -> str:
    """A value for a message: shortened, and safe even if its own repr fails."""
    try:
        shown = _short.repr(value)
    except Exception:  # noqa: BLE001  (whatever a value's own repr does)
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


def is_text(value: object) -> bool:
    """Whether a catalog and Spark can store the value as text."""
    try:
        _text(value)
    except _MisfitError:
        return False
    return True


# --- from annotations to takers ----------------------------------------------------------


@cache
def _takers(function: Any) -> dict[str, _Taker]:
    hints = {
        name: _hint(function, annotation)
        for name, annotation in function.__annotations__.items()
        if name != "return"
    }
    takers = {name: _taker(hint) for name, hint in hints.items()}
    return {name: taker for name, taker in takers.items() if taker is not _ANYTHING}


def _hint(function: Any, annotation: Any) -> Any:
    """The type that an annotation means.

    A type that is imported only for type checkers counts as Any: it is checked where it is used.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    known: dict[str, Any] = {}
    while True:
        try:
            scope = function.__globals__
            return get_type_hints(holder, globalns=scope, localns=known, include_extras=True)["it"]
        except NameError as error:
            known[str(error.name)] = Any
        except AttributeError:  # of a module that is imported for type checkers
            return Any


def _taker(hint: Any) -> _Taker:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _narrowed(_taker(inner[0]), inner[1])
    if origin in (Union, types.UnionType):
        return _either([_taker(one) for one in inner])
    if hint in _ATOMS:
        return _ATOMS[hint]
    kind: Any = origin or hint
    if not isinstance(kind, type):
        return _ANYTHING
    if issubclass(kind, Mapping):
        return _Taker("a dict", _instance(Mapping))
    if kind in (Sequence, list, Iterable):
        return _listed(_taker(inner[0]) if inner else _ANYTHING, kind)
    if kind is object:
        return _ANYTHING
    if kind.__name__ == "Callable":
        return _Taker("a function", _instance(kind))
    return _Taker(f"a {kind.__name__}", _instance(kind))


def _instance(kind: type) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _MisfitError
        return value

    return take


def _either(takers: list[_Taker]) -> _Taker:
    if _ANYTHING in takers:
        return _ANYTHING

    def take(value: Any) -> Any:
        reason = ""
        for taker in takers:
            try:
                return taker.take(value)
            except _MisfitError as misfit:
                reason = reason or str(misfit)
        raise _MisfitError(reason)

    return _Taker(" or ".join(taker.words for taker in takers), take)


def _listed(element: _Taker, kind: type) -> _Taker:
    """A list of such elements; a single text passes as it is, for calls that take either."""

    def is_kind(value: object) -> bool:
        return isinstance(value, kind)

    def take(value: Any) -> Any:
        if isinstance(value, str):
            return element.take(value)
        if isinstance(value, bytes) or not is_kind(value):
            raise _MisfitError
        return [element.take(one) for one in value]

    words = "" if element is _ANYTHING else f", each {element.words}"
    return _Taker(f"a list{words}", take)


def _narrowed(taker: _Taker, limit: Any) -> _Taker:
    is_length = isinstance(limit, Length)

    def take(value: Any) -> Any:
        taken = taker.take(value)
        if not limit.least <= (len(taken) if is_length else taken) <= limit.most:
            raise _MisfitError
        return taken

    if is_length:
        words = f"a {limit.what} of {limit.least} to {limit.most} characters"
    else:
        words = f"{limit.what or taker.words} from {limit.least} to {limit.most}"
    return _Taker(words, take)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _MisfitError
    if len(value) > LONGEST_TEXT:
        raise _MisfitError(f"it has {len(value):,} characters: at most {LONGEST_TEXT:,} are taken")
    if "\0" in value:
        raise _MisfitError("it has a null character in it")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise _MisfitError("it has half of a surrogate pair in it, which is no text") from None
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _MisfitError
    try:
        return operator.index(value)  # also for numpy: database drivers want Python's own int
    except TypeError:
        raise _MisfitError from None


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:  # noqa: PLR0124
        raise _MisfitError
    return value  # type: ignore[return-value]


_ANYTHING = _Taker("anything", lambda value: value)
_ATOMS: dict[Any, _Taker] = {
    Any: _ANYTHING,
    str: _Taker("text", _text),
    int: _Taker("a whole number", _whole),
    float: _Taker("a number", _number),
    bool: _Taker("True or False", _instance(bool)),
    type(None): _Taker("None", _instance(type(None))),
}


# The deepest nesting; the most values and characters in total.
DEEPEST_JSON, MOST_JSON = 32, 4 * LONGEST_TEXT


def json_value(given: object, what: str) -> Any:
    """A copy of the value, if JSON can hold it; else an InvalidError that says why not."""
    return _Copier(what).copied(given, 0)


class _Copier:
    def __init__(self, what: str) -> None:
        self._what, self._left = what, MOST_JSON

    def copied(self, value: Any, depth: int) -> Any:
        if depth > DEEPEST_JSON:
            raise self._wrong(f"at most {DEEPEST_JSON} values inside each other")
        if isinstance(value, Mapping):
            return {
                str(self._atom(name, names=True)): self.copied(one, depth + 1)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.copied(one, depth + 1) for one in value]
        return self._atom(value)

    def _atom(self, value: Any, *, names: bool = False) -> Any:
        self._left -= 1 + (len(value) if isinstance(value, str) else 0)
        if self._left < 0:
            raise self._wrong(f"at most {MOST_JSON:,} values and characters")
        if is_text(value):
            return str(value)
        if isinstance(value, str) and len(value) > LONGEST_TEXT:
            raise self._wrong(f"with texts of at most {LONGEST_TEXT:,} characters")
        if not names:
            if value is None or isinstance(value, bool):
                return value
            if isinstance(value, int) and abs(value) < 2**63:
                return int(value)
            if isinstance(value, float) and math.isfinite(value):
                return float(value)
        raise self._wrong(f"which has no word for {show(value)}")

    def _wrong(self, why: str) -> InvalidError:
        return InvalidError(f"{self._what} has to be JSON, {why}")
