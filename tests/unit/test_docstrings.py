"""Docstrings open with what a thing is or does, and document the package completely."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_provider_ckpt"
QUESTION_WORDS = {"What", "Whether", "Of", "Who", "Why", "That", "How", "Where", "When", "Which"}
MANY_PARAMETERS = 3
"""Number of parameters from which a public function documents each of them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | Function


def opening_with_questions(tree: ast.Module) -> list[str]:
    """Return the first lines of the docstrings, those of variables among them, that open with a question word."""
    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
    docstrings = [
        inspect.cleandoc(v.value) for v in strings if isinstance(v, ast.Constant) and isinstance(v.value, str)
    ]
    lines = [docstring.partition("\n")[0] for docstring in docstrings if docstring]
    return [line for line in lines if QUESTION_WORDS & set(re.findall(r"^\w+", line))]


def wrapping_first_sentences(tree: ast.Module) -> list[str]:
    """Return the first lines of the docstrings whose first sentence does not end on that line."""
    docstrings = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, Documented)]
    paragraphs = [docstring.partition("\n\n")[0].partition("\n:")[0] for docstring in docstrings if docstring]
    lines = [paragraph.split("\n") for paragraph in paragraphs]
    return [first for first, *more in lines if more and not re.search(r"[.:]$|[.;] [A-Z]", first)]


def public_functions(tree: ast.Module | ast.ClassDef) -> Iterator[tuple[ast.ClassDef | None, Function]]:
    """Yield the public functions and methods with their class, constructors among them.

    The name of a test is a sentence already, so tests are left out.
    """
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node)
        elif isinstance(node, Function) and (node.name == "__init__" or not node.name.startswith(("_", "test_"))):
            yield tree if isinstance(tree, ast.ClassDef) else None, node


def public_classes(tree: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Yield the public classes, nested ones among them."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node
            yield from public_classes(node)


def without_docstring(tree: ast.Module) -> list[str]:
    """Return the names of the module, public classes and public functions that have no docstring."""
    functions = [function for _, function in public_functions(tree) if function.name != "__init__"]
    found = [node.name for node in (*public_classes(tree), *functions) if not ast.get_docstring(node)]
    return [*([] if ast.get_docstring(tree) else ["module"]), *found]


def parameters(function: Function, owner: ast.ClassDef | None) -> list[str]:
    """Return the names of a function's parameters without ``self`` and ``cls``."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    is_static = any(isinstance(item, ast.Name) and item.id == "staticmethod" for item in function.decorator_list)
    return names[1:] if owner is not None and not is_static else names


def undocumented_parameters(tree: ast.Module) -> list[str]:
    """Return the parameters that lack a ``:param:``, in public functions with many parameters."""
    found = []
    for owner, function in public_functions(tree):
        node = owner if owner is not None and function.name == "__init__" else function
        docstring = ast.get_docstring(node) or ""
        names = parameters(function, owner)
        if len(names) >= MANY_PARAMETERS:
            found += [f"{node.name}({name})" for name in names if f":param {name}:" not in docstring]
    return found


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text("utf-8"))


@pytest.mark.parametrize("folder", ["airflow_provider_ckpt", "tests", "dags"])
def test_no_docstring_opens_with_a_question_word(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    found = {str(path.relative_to(ROOT)): lines for path in modules if (lines := opening_with_questions(parse(path)))}

    assert modules
    assert found == {}


def test_the_first_sentence_of_every_docstring_ends_on_its_first_line() -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := wrapping_first_sentences(parse(path)))
    }

    assert found == {}


def test_every_public_module_class_and_function_has_a_docstring() -> None:
    found = {
        str(path.relative_to(ROOT)): names
        for path in PACKAGE.rglob("*.py")
        if (names := without_docstring(parse(path)))
    }

    assert found == {}


def test_every_parameter_of_a_public_function_with_many_is_documented() -> None:
    modules = PACKAGE.rglob("*.py")
    found = {str(path.relative_to(ROOT)): names for path in modules if (names := undocumented_parameters(parse(path)))}

    assert found == {}


@pytest.mark.parametrize("word", sorted(QUESTION_WORDS))
def test_a_question_word_is_found_at_every_kind_of_docstring(word: str) -> None:
    docstring = f'"""{word}, of a thing."""'
    method = f"class _C:\n    {docstring}\n    async def _m(self):\n        {docstring}\n"
    text = f"{docstring}\n{method}def _f():\n    {docstring}\n"

    assert opening_with_questions(ast.parse(text)) == [f"{word}, of a thing."] * 4


def test_a_word_that_only_begins_like_a_question_word_is_accepted() -> None:
    assert opening_with_questions(ast.parse('"""Offsets, whoever reads them; what they are."""')) == []


@pytest.mark.parametrize(
    ("text", "wraps"), [("One.\nTwo.", False), ("One two\nthree.", True), ("One\n:param a: b", False), ("One.", False)]
)
def test_a_first_sentence_that_wraps_is_found(text: str, wraps: bool) -> None:
    assert bool(wrapping_first_sentences(ast.parse(f'"""{text}"""'))) is wraps


def test_missing_docstrings_are_found_and_private_names_need_none() -> None:
    text = """
class Public:
    def __init__(self): ...
    def method(self): ...
    class Inner: ...
    def _private(self): ...
class _Private:
    def method(self): ...
async def function(): ...
def _function(): ...
"""

    assert without_docstring(ast.parse(text)) == ["module", "Public", "Inner", "method", "function"]


def test_missing_parameters_are_found_in_functions_methods_and_constructors() -> None:
    text = '''
class Public:
    """Example.

    :param a: documented
    """

    def __init__(self, a, b, *, c=None): ...
    @staticmethod
    def static(x, y, z):
        """:param x: documented"""
    @classmethod
    def few(cls, x, y): ...
    def _private(self, x, y, z): ...
def function(x, y, /, z):
    """
    :param x: documented
    :param y: documented
    """
'''

    assert undocumented_parameters(ast.parse(text)) == [
        "Public(b)",
        "Public(c)",
        "static(y)",
        "static(z)",
        "function(z)",
    ]
