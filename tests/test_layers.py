"""Imports point downwards only (the layers are drawn in the design and in the README)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = "tailrace"
SOURCE = Path(__file__).parents[1] / "src" / PACKAGE

# From low to high. A layer may import itself and every layer below, never one beside it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("catalog", "objects", "spark_sql"),
    ("store",),
    ("propagation", "loading"),
    ("views", "indexes", "replicas"),
    ("parts",),
    ("lake",),
    ("sql",),
    ("server", "datasource"),
)
# The one import that points up: `lake.sql(…)` hands its text on to the layer above, and imports it
# inside of the call, so that a lake opens without it.
ON_CALL = frozenset({("lake", "sql")})
# Above all layers: they show the package to its users.
TOP = ("__init__", "__main__", "cli", "demo")
# Every other module at the package's root (errors, settings, clock, …) is a leaf: below all layers.

LEAF_LEVEL = -1
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
LEVELS |= dict.fromkeys(TOP, len(LAYERS))


def violations(source: Path) -> list[str]:
    """Every import in the package that points up or sideways, as `file:line: reason`."""
    found = []
    for path in sorted(source.rglob("*.py")):
        here = _part(path.relative_to(source).with_suffix("").parts)
        for line, there, is_late in _imports(path, source):
            if not _allowed(here, there) and not (is_late and (here, there) in ON_CALL):
                found.append(f"{path.relative_to(source)}:{line}: {here} imports {there}")
    return found


def _part(names: tuple[str, ...]) -> str:
    """The layer, leaf or top module that a module belongs to; `names` starts below the package."""
    return names[0] if names else "__init__"


def _allowed(here: str, there: str) -> bool:
    if here == there:
        return True
    below, above = LEVELS.get(there, LEAF_LEVEL), LEVELS.get(here, LEAF_LEVEL)
    # Leaves may use each other, and so may the modules on top; layers of one height may not.
    return below < above or (below == above and above in (LEAF_LEVEL, len(LAYERS)))


def _imports(path: Path, source: Path) -> list[tuple[int, str, bool]]:
    """The parts of the package that a file imports, wherever in the file, also for types only.

    And whether it does so late: not when the file itself is imported.
    """
    found = []
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {id(inner) for node in ast.walk(tree) if _is_late(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = _modules_of(node, path, source)
        else:
            continue
        for module in modules:
            package, *names = module.split(".")
            if package == PACKAGE:
                found.append((node.lineno, _part(tuple(names)), id(node) in late))
    return found


def _is_late(node: ast.AST) -> bool:
    """Whether what is inside of this is not run by importing the file."""
    for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return for_types or isinstance(node, ast.FunctionDef)


def _modules_of(node: ast.ImportFrom, path: Path, source: Path) -> list[str]:
    if node.level:  # relative: as many folders up as there are dots, the first being its own
        folders = (PACKAGE, *path.relative_to(source).parent.parts)
        module = ".".join(
            (*folders[: len(folders) - node.level + 1], *(node.module or "").split("."))
        )
        module = module.rstrip(".")
    else:
        module = node.module or ""
    if module != PACKAGE:
        return [module]
    # `from tailrace import x`: x is a part if there is such a file, else a name of the package.
    return [
        f"{PACKAGE}.{alias.name}" if _is_part(alias.name, source) else PACKAGE
        for alias in node.names
    ]


def _is_part(name: str, source: Path) -> bool:
    return (source / name).is_dir() or (source / f"{name}.py").is_file()


def test_imports_point_downwards() -> None:
    assert violations(SOURCE) == []


# Inside of views, from low to high.
ROOMS = (
    "jobs", "query", "incremental", "definition", "resolve", "refresh", "consumer", "view", "views",
)  # fmt: skip


def test_rooms_of_views_know_only_those_below() -> None:
    known: set[str] = set()
    for room in ROOMS:
        known.add(room)
        for path in [SOURCE / "views" / f"{room}.py", *(SOURCE / "views" / room).rglob("*.py")]:
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                assert set(re.findall(r"tailrace\.views\.(\w+)", text)) <= known, path


def test_every_folder_is_a_known_layer() -> None:
    folders = {path.parent.relative_to(SOURCE).parts[0] for path in SOURCE.glob("*/**/*.py")}
    assert folders <= set(LEVELS), "name the new folder's place in LAYERS"


@pytest.mark.parametrize(
    ("path", "statement", "reason"),
    [
        ("store/commit.py", "import tailrace.lake", "store imports lake"),
        (
            "store/commit.py",
            "from tailrace.propagation.job import Job",
            "store imports propagation",
        ),
        ("store/commit.py", "from tailrace import sql", "store imports sql"),
        ("store/commit.py", "from tailrace import connect", "store imports __init__"),
        ("store/commit.py", "from ..lake import Lake", "store imports lake"),
        ("store/commit.py", "from .. import lake", "store imports lake"),
        ("store/deep/er.py", "from ...views import View", "store imports views"),
        ("catalog/database.py", "from tailrace.objects import Objects", "catalog imports objects"),
        ("objects/paths.py", "from tailrace.catalog import Catalog", "objects imports catalog"),
        ("views/plan.py", "import tailrace.indexes", "views imports indexes"),
        ("errors.py", "from tailrace.catalog import Catalog", "errors imports catalog"),
        ("clock.py", "import tailrace", "clock imports __init__"),
        ("lake.py", "from tailrace.demo import main", "lake imports demo"),
        ("lake.py", "from tailrace.sql.statements import run", "lake imports sql"),
        ("lake.py", "def f():\n    import tailrace.datasource", "lake imports datasource"),
        ("views/view.py", "def f():\n    import tailrace.sql", "views imports sql"),
        ("store/commit.py", "def f():\n    import tailrace.cli", "store imports cli"),
        (
            "store/commit.py",
            "if TYPE_CHECKING:\n    from tailrace.lake import Lake",
            "store imports lake",
        ),
    ],
)
def test_an_import_that_points_up_is_found(
    tmp_path: Path, path: str, statement: str, reason: str
) -> None:
    _write(tmp_path, path, statement)
    (found,) = violations(tmp_path)
    assert found.startswith(f"{path}:")
    assert found.endswith(reason)


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("store/commit.py", "from tailrace.catalog.ducklake import snapshot"),
        ("store/commit.py", "from tailrace import catalog, errors"),
        ("store/commit.py", "from tailrace.store.schema import Schema"),
        ("store/commit.py", "from .schema import Schema"),
        ("views/plan.py", "import tailrace.objects"),
        ("settings.py", "from tailrace.errors import InvalidError"),
        ("lake.py", "import tailrace.views, tailrace.indexes"),
        ("lake.py", "def sql():\n    from tailrace.sql.statements import run"),
        ("lake.py", "if TYPE_CHECKING:\n    from tailrace.sql.result import Result"),
        ("__init__.py", "from tailrace.lake import connect"),
        ("demo.py", "import tailrace"),
        ("store/commit.py", "import tailrace_plugin, pyarrow"),
    ],
)
def test_an_import_that_points_down_is_fine(tmp_path: Path, path: str, statement: str) -> None:
    _write(tmp_path, path, statement)
    assert violations(tmp_path) == []


def _write(source: Path, path: str, statement: str) -> None:
    for name in (*LEVELS, "errors"):
        if name not in TOP:
            (source / name).mkdir()
    file = source / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(statement + "\n", encoding="utf-8")
