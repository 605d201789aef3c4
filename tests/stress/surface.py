"""Random calls of everything that is exported, with arguments that fit and arguments that don't.

What is called is found by introspection: every function in `tailrace.__all__`, and every public
method and property of every class there, on objects of a small lake (`_World`) and on whatever
the calls return. Three things must hold of each call:

1. it raises nothing but a TailraceError, or the TypeError that Python raises of a call that does
   not fit the signature;
2. it ends;
3. if it raised, the lake is at the snapshot at which it was.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import queue
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailrace
from tailrace.datasource.place import place_of
from tailrace.datasource.reading import find
from tailrace.loading import load
from tailrace.propagation.changes import SourceChanges
from tests.stress import values

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from pyspark.sql import SparkSession

    from tests.support.lakes import LakeArgs

# A call that takes longer hangs: what the slowest does takes seconds.
LONGEST = 240.0
CALLS_IN_A_WORLD = 200
HARVEST = 12  # objects of a class that are kept of what calls return

# What waits for signals, by design: only with arguments that it refuses.
_WAITS = {"serve"}
# What commits the work of jobs, and may then fail for another.
_RUNS_JOBS = {"run_until_fresh", "wait", "refresh", "rebuild", "serving", "sql", "close"}
# What costs a Spark job or more: called less often.
_COSTLY = {"to_df", "changes", "verify", "refresh", "search_many", "run_until_fresh", "rebuild"}
_COSTLY |= {"serving", "collect", "show", "wait", "connect", "sql", "inserts", "deletes"}
# Not a part of what they do, but of Python or of pandas: how an error is made, how a view is.
_OUTSIDE = (BaseException, type(tailrace.State.IDLE))


def _source(
    lake: Any, table: Any, version: Any = None, tenant: Any = None, operation: Any = "append"
) -> None:
    """What Spark does with the options of `format("tailrace")`, which come as text."""
    named = {"lake": lake, "table": table, "version": version, "tenant": tenant}
    options = {name: _short(value) for name, value in named.items() if value is not None}
    place = place_of({**options, "operation": _short(operation)}, {})
    with place.open() as opened:
        find(opened, place.table, place.version)


CLASSES: dict[str, type] = {
    name: value
    for name in tailrace.__all__
    if inspect.isclass(value := getattr(tailrace, name)) and not issubclass(value, _OUTSIDE)
} | {"SourceChanges": SourceChanges}  # which are what Changes are made of
_NAMES = {kind: name for name, kind in CLASSES.items()}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        name: value
        for name in tailrace.__all__
        if inspect.isfunction(value := getattr(tailrace, name))
    },
    "load": load,
    "source": _source,
    "Settings": tailrace.Settings,
}


class _World:
    """A lake with one of everything, and objects of it that are closed, ended or dropped."""

    def __init__(self, args: LakeArgs, spark: SparkSession) -> None:
        self._stack = contextlib.ExitStack()
        self.lake = lake = self._stack.enter_context(args.connect(spark=spark))
        self.other = self._stack.enter_context(args.connect(spark=spark))
        closed = args.connect(spark=spark)
        lake.create_schema("s")
        lake.create_schema("a.b")
        columns = {"id": "bigint", "n": "int", "word": "string", "price": "decimal(5,2)"}
        table = lake.create_table("t", columns, primary_key="id")
        table.append([{"id": n, "n": n % 2, "word": f"w{n}", "price": None} for n in range(5)])
        plain = lake.create_table("plain", {"id": "bigint"})
        plain.append([{"id": 1}, {"id": 2}])
        lake.create_table("s.odd", {"id": "int"})
        lake.create_table("`a.b`.`c``d`", {"id": "int"})
        docs = {"id": "bigint", "note": "string", "emb": "array<float>"}
        lake.create_table("docs", docs, primary_key="id").append(
            [{"id": n, "note": f"late delivery {n}", "emb": [n, 1.0, 0.5]} for n in range(4)]
        )
        words = lake.create_index("docs", "words", using="fulltext", columns=["note"])
        near = lake.create_index("docs", "near", using="vector", columns=["emb"])
        view = lake.create_view("v", "SELECT n, count(*) AS c FROM t GROUP BY n")
        lake.create_view("w", "SELECT id FROM plain")  # never built
        copied = {"consumer": {"kind": "replica", "table": "copy_of_t"}}
        lake.jobs.register("t", "copy", copied)
        lake.jobs.register("plain", "fuzzed", {"consumer": {"kind": "fuzzed"}})
        gone = lake.create_table("gone", {"id": "int"})
        gone_view = lake.create_view("gone_view", "SELECT id FROM gone")
        lake.drop_table("gone", cascade=True)
        ended = lake.transaction()
        ended.rollback()
        self.objects: dict[str, list[Any]] = {name: [] for name in CLASSES}
        self._keep(lake, self.other, closed, lake.jobs, closed.jobs, table, plain, gone)
        self._keep(closed.table("t"), view, lake.view("w"), gone_view, words, near)
        self._keep(lake.transaction(), ended, lake.sql("SHOW TABLES"), lake.sql("DESCRIBE t"))
        self._keep(lake.sql("SELECT id, id FROM t"))
        self._keep(tailrace.Settings(), tailrace.Trigger({}))
        # On a lake of its own, where there is nothing to do: jobs would commit meanwhile.
        beside = self._stack.enter_context(tailrace.connect("beside", spark=spark))
        self._keep(self._stack.enter_context(beside.serving()))
        closed.close()
        self._stack.callback(closed.close)  # again: what it is asked opens it anew
        for built in (view, words, near):
            self._build(built)
        self.found = words.search("late")

    def _build(self, built: Any) -> None:
        (built.refresh if isinstance(built, tailrace.View) else built.wait)()
        if isinstance(built, tailrace.View):
            self._keep(built.explain(), built.verify(), built.status(), *built.history())
        else:
            self._keep(built.status())

    def _keep(self, *found: Any) -> None:
        for one in found:
            self.harvest(one)

    def harvest(self, found: Any) -> None:
        """Keep what a call returned, if it is of a class that is called."""
        if isinstance(found, list | tuple):
            for one in found[:3]:
                self.harvest(one)
        name = next((n for n, kind in CLASSES.items() if type(found) is kind), None)
        if name is not None and len(self.objects.setdefault(name, [])) < HARVEST:
            self.objects[name].append(found)

    def close(self) -> None:
        self._stack.close()


class Fuzz:
    """Makes calls, and remembers what is wrong."""

    def __init__(
        self, random: Random, new_args: Callable[[], LakeArgs], spark: SparkSession
    ) -> None:
        self._random, self._new_args, self._spark = random, new_args, spark
        self._world: _World | None = None
        self._made = 0
        self.wrong: list[str] = []
        self.called: set[str] = set()
        self.counts = {"returned": 0, "refused": 0}

    def run(self, calls: int) -> None:
        """Make so many calls, in as many worlds as that needs."""
        Path("rows.csv").write_text("id,n,word,price\n7,1,a,1.5\n8,x,b,\n")
        tailrace.consumer("fuzzed")(self._consume)
        with _watched() as watch:
            while self._made < calls and len(self.wrong) < 20:
                if self._made % CALLS_IN_A_WORLD == 0:
                    self._renew()
                self._made += 1
                self._one(watch)
            if self._world is not None:
                self._world.close()

    def _renew(self) -> None:
        if self._world is not None:
            self._world.close()
        self._world = _World(self._new_args(), self._spark)

    def _consume(self, changes: Any, txn: Any, job: Any) -> None:
        """As a consumer: what is called is what it is given."""
        for owner in (changes, changes["plain"], txn, job):
            for _ in range(3):
                names = [n for n in _members(type(owner)) if n not in ("commit", "rollback")]
                self._attempt(owner, self._random.choice(names), check=False)

    # --- a call -----------------------------------------------------------------------------

    def _one(self, watch: Callable[[Callable[[], Any]], Any]) -> None:
        assert self._world is not None
        if self._random.random() < 0.1:
            label = self._random.choice(sorted(FUNCTIONS))
            watch(lambda: self._attempt(None, label))
            return
        kinds = [name for name, found in self._world.objects.items() if found]
        weights = [len(_members(CLASSES[name])) for name in kinds]
        (kind,) = self._random.choices(kinds, weights)
        owner = self._random.choice(self._world.objects[kind])
        members = _members(CLASSES[kind])
        costs = [0.1 if name in _COSTLY else 1.0 for name in members]
        (name,) = self._random.choices(members, costs)
        if name == "close" and owner is self._world.lake:
            owner = self._world.other
        watch(lambda: self._attempt(owner, name))

    def _attempt(self, owner: Any, name: str, *, check: bool = True) -> None:
        assert self._world is not None
        label = name if owner is None else f"{_NAMES[type(owner)]}.{name}"
        self.called.add(label)
        before = self._world.lake.snapshot if check else None
        kind = FUNCTIONS[name] if owner is None else getattr(type(owner), name)
        is_call = owner is None or inspect.isfunction(kind)
        args = self._arguments(kind, label, skip=owner is not None) if is_call else {}
        if name in _WAITS:
            args["port"] = self._random.choice(["x", -1, 2**40, None])
        shown = f"{label}({', '.join(f'{k}={_short(v)}' for k, v in args.items())})"
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = getattr(owner, name) if owner is not None else kind
                self._take(found(**args) if is_call else found, name)
        except tailrace.TailraceError:
            self.counts["refused"] += 1
        except TypeError as error:
            self.counts["refused"] += 1
            if not _is_of_the_call(error):
                self._complain(shown, error)
        except Exception as error:  # noqa: BLE001  (which is what is looked for)
            self._complain(shown, error)
        else:
            self.counts["returned"] += 1
            return
        if check and name not in _RUNS_JOBS and self._world.lake.snapshot != before:
            self.wrong.append(f"call {self._made}: {shown} raised, and moved the snapshot")

    def _take(self, found: Any, name: str) -> None:
        assert self._world is not None
        if isinstance(found, Iterator):
            next(found, None)
        elif isinstance(found, tailrace.Lake | tailrace.Serving):
            found.close()
        elif callable(found) and name in ("consumer", "trigger"):
            found(self._random.choice([*values.ODD, _idle]))
        elif isinstance(found, tailrace.Transaction) and self._random.random() < 0.5:
            found.rollback()
        else:
            self._world.harvest(found)

    def _arguments(self, function: Any, label: str, *, skip: bool) -> dict[str, Any]:
        """Arguments of which all may fit, all but one, or any number."""
        parameters = list(inspect.signature(function).parameters.values())[skip:]
        wanted = [
            one
            for one in parameters
            if one.default is inspect.Parameter.empty or self._random.random() < 0.4
        ]
        given = {one.name: self._fitting(one, label) for one in wanted}
        chance = self._random.random()
        strange = wanted if chance < 0.1 else self._random.sample(wanted, min(1, len(wanted)))
        for one in strange if chance < 0.7 else ():
            given[one.name] = self._odd(one.name)
        if self._random.random() < 0.02:
            given["no_such_argument"] = 1
        elif given and self._random.random() < 0.02:
            given.popitem()
        return given

    def _fitting(self, parameter: inspect.Parameter, label: str) -> Any:
        assert self._world is not None
        objects = self._world.objects
        kind = str(parameter.annotation)
        if kind == "bool":
            return self._random.random() < 0.5
        if parameter.name == "txn" and self._random.random() < 0.5:
            return self._random.choice(objects["Transaction"])
        if parameter.name == "lake" and kind == "Lake":
            return self._random.choice(objects["Lake"])
        if parameter.name == "result":
            return self._world.found
        return values.fitting(self._random, label, parameter.name)

    def _odd(self, name: str) -> Any:
        assert self._world is not None
        found = [one for found in self._world.objects.values() for one in found[:2]]
        return values.odd(self._random, name, found)

    def _complain(self, shown: str, error: BaseException) -> None:
        last = "".join(traceback.format_exception(error)[-6:])
        self.wrong.append(f"call {self._made}: {shown} raised {type(error).__name__}\n{last}")


def _idle(_changes: Any, _txn: Any, _job: Any) -> None:
    """A consumer."""


def _members(kind: type) -> list[str]:
    """What a class offers: public methods, and properties."""
    return [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and (inspect.isfunction(member := getattr(kind, name)) or isinstance(member, property))
    ] or ["__repr__"]


def _is_of_the_call(error: TypeError) -> bool:
    """Whether Python refused the call itself, rather than something inside of it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    file = "" if trace is None else trace.tb_frame.f_code.co_filename
    return file == __file__ or file.endswith("tailrace/arguments.py")


def _short(value: Any) -> str:
    try:
        return value if isinstance(value, str) and len(value) < 100 else repr(value)[:100]
    except Exception:  # noqa: BLE001  (some are there to raise)
        return f"<{type(value).__name__}>"


@contextlib.contextmanager
def _watched() -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Runs calls in a thread, and fails when one does not end."""
    asked: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def work() -> None:
        while (call := asked.get()) is not None:
            try:
                call()
                done.put(None)
            except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
                done.put(error)

    thread = threading.Thread(target=work, name="fuzz", daemon=True)
    thread.start()

    def watch(call: Callable[[], Any]) -> None:
        asked.put(call)
        try:
            error = done.get(timeout=LONGEST)
        except queue.Empty:
            frame = sys._current_frames()[thread.ident or 0]
            stack = "".join(traceback.format_stack(frame))
            raise AssertionError(f"a call has not ended after {LONGEST} s:\n{stack}") from None
        if error is not None:
            raise error

    yield watch
    asked.put(None)
