"""What the documents show works."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.usefixtures("spark")
def test_the_example_in_the_guide_to_jobs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/jobs.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example, names)
    lake = names["lake"]
    assert "is_fresh=True" in capsys.readouterr().out
    assert lake.table("audit").to_arrow().num_rows == 1
    assert lake.table("large_orders").to_arrow().column("id").to_pylist() == [1]
    lake.close()


@pytest.mark.usefixtures("spark")
def test_the_example_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(example, names)
    lake: Any = names["lake"]
    assert lake.jobs.status("orders", "copy").is_fresh
    lake.close()
    now, then, changes = capsys.readouterr().out.split("\n\n")[:3]
    assert "bob|   4.0|" in now
    assert "ada|  12.5|" in then
    assert "delete|" in changes
    assert "12.5" in changes


@pytest.mark.usefixtures("spark")
def test_the_example_in_the_guide_to_views_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/views.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example, names)
    names["lake"].close()
    said = capsys.readouterr().out
    assert said.startswith("merge\n")
    assert "bob| 5.00|" in said


def test_the_example_in_the_guide_to_indexes_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (ROOT / "docs/indexes.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example, names)
    names["lake"].close()
    words, near, latest, both = capsys.readouterr().out.splitlines()
    assert "'id': 1" in words
    assert "'id': 2" not in words
    assert near.startswith("[{'id': 1, 'score': 0.99")
    assert latest == "4 [4, 2, 1]"
    assert both.startswith("[{'id': 1, 'score': 0.032")


def test_links_in_the_documents_lead_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if not link.startswith("http"):
                assert (document.parent / link).exists(), f"{document.name}: {link}"


def walk(title: str) -> list[tuple[str, str]]:
    """The file and the function of each step of a walk in the architecture."""
    text = (ROOT / "docs/architecture.md").read_text()
    (section,) = re.findall(rf"### {re.escape(title)}\n(.*?)(?=\n##)", text, re.DOTALL)
    return re.findall(r"`([\w/]+\.py)` `([\w.]+)`", section)


WALKS = (
    "From a commit of ten rows to a view that shows it",
    "From `register` to a job's first commit",
)


@pytest.mark.parametrize("title", WALKS)
def test_the_steps_of_a_walk_are_where_it_says(title: str) -> None:
    steps = walk(title)
    assert steps
    for file, function in steps:
        names = definitions((ROOT / "src/tailrace" / file).read_text())
        assert function in names, f"{file} has no {function}"


def definitions(source: str) -> set[str]:
    """The functions, classes and methods of a module."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    top = [node for node in ast.parse(source).body if isinstance(node, kinds)]
    inside = {
        f"{node.name}.{part.name}" for node in top for part in node.body if isinstance(part, kinds)
    }
    return {node.name for node in top} | inside


def test_the_guide_to_contributing_names_files_that_are_there() -> None:
    table = (ROOT / "docs/contributing.md").read_text().partition("## Where to change what")[2]
    table = table.partition("\n## ")[0]
    paths = re.findall(r"`([\w/]+(?:\.py|/))`", table)
    assert len(paths) > 30
    for path in paths:
        root = ROOT if path.startswith(("tests/", "bench/")) else ROOT / "src/tailrace"
        assert (root / path).exists(), path
