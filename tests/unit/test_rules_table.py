"""The table "Where each rule is" of docs/architecture.rst names files and definitions that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_provider_ckpt"


class Rule(NamedTuple):
    """A row of the table.

    :param text: the rule, with its noun in bold
    :param file: path below the package
    :param name: a definition in the file: a function, class or constant, or ``Class.attribute``
    """

    text: str
    file: str
    name: str

    @property
    def noun(self) -> str:
        """The words in bold, in lower case."""
        [found] = re.findall(r"\*\*([^*]+)\*\*", self.text)
        return str(found).lower()


def read_section() -> str:
    """Return the text of the table's section."""
    return (ROOT / "docs" / "architecture.rst").read_text("utf-8").partition("\nWhere each rule is\n---")[2]


def read_rules() -> list[Rule]:
    """Return the table's rows in order."""
    row = re.compile(r"^   \* - (.+)\n     - ``(.+)``\n     - ``(.+)``$", re.MULTILINE)
    return [Rule(*found) for found in row.findall(read_section())]


RULES = read_rules()


@cache
def definitions(file: str) -> frozenset[str]:
    """Return the names that a module defines, and ``Class.attribute`` for the attributes of its classes.

    A file of alert rules defines the names of its alerts.
    """
    if file.endswith(".yaml"):
        return frozenset(re.findall(r"- alert: (\w+)", (PACKAGE / file).read_text("utf-8")))
    found: set[str] = set()
    for node in ast.parse((PACKAGE / file).read_text("utf-8")).body:
        names = defined(node)
        found |= names
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for item in node.body for name in defined(item)}
    return frozenset(found)


def defined(node: ast.stmt) -> set[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def words(text: str) -> set[str]:
    """Return the words of a name or a noun in the singular, as far as an ``s`` tells."""
    return {word.removesuffix("s") for word in re.split(r"[ _]", text) if word}


def test_the_table_is_whole() -> None:
    section = read_section()

    assert len(RULES) == section.count("\n   * - ") - section.count("\n   * - rule\n")
    assert len(RULES) >= 45


def test_no_row_is_there_twice() -> None:
    assert sorted(RULES) == sorted(set(RULES))
    assert len({rule.text for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.file}:{rule.name}")
def test_the_file_defines_the_name(rule: Rule) -> None:
    assert rule.name in definitions(rule.file)


def test_a_file_is_named_after_its_rule() -> None:
    other = {(rule.noun, rule.file) for rule in RULES if not words(rule.noun) <= words(Path(rule.file).stem)}

    assert not other
