"""Rewrite one place of a Python source that is found by its syntax tree, so that layout and comments may change."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

_Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class RewriteError(Exception):
    """The place to rewrite is missing or ambiguous, or the result is not a different, valid program."""


def rewrite(source: str, scope: str, old: str, new: str) -> str:
    """Return the source with one statement, run of statements or expression replaced.

    :param source: a module
    :param scope: the dotted name of the class or function that holds the place; empty for the module
    :param old: the code to replace; it must occur exactly once in the scope, whatever its layout
    :param new: the code to put there; empty to remove statements
    :raises RewriteError: if ``old`` does not occur exactly once, or the result does not compile or means the same
    """
    tree = ast.parse(source)
    found = list(_places(_find(tree, scope), ast.parse(textwrap.dedent(old)).body))
    if len(found) != 1:
        raise RewriteError(f"{scope or 'the module'} holds {len(found)} times what is to be replaced once: {old!r}")
    first, last = found[0]
    begin, end = _offset(source, first.lineno, first.col_offset), _offset(source, *_end(last))
    if isinstance(first, ast.expr):
        put = f"({new})"
    else:
        put = textwrap.indent(textwrap.dedent(new).strip("\n") or "pass", " " * first.col_offset).lstrip(" ")
    return _checked(tree, _spliced(source, begin, end, put))


def rewrite_text(source: str, scope: str, old: str, new: str) -> str:
    """Return the source with a piece of one string literal replaced, such as SQL or a pattern.

    :param source: a module
    :param scope: the dotted name of the class or function that holds the literal; empty for the module
    :param old: a piece of the literal as it is written; it must occur exactly once in the scope's literals
    :param new: the piece to put there
    :raises RewriteError: if ``old`` does not occur exactly once, or the result does not compile or means the same
    """
    tree, found = ast.parse(source), []
    for literal in _literals(_find(tree, scope)):
        begin = _offset(source, literal.lineno, literal.col_offset)
        text = source.encode()[begin : _offset(source, *_end(literal))].decode()
        found += [begin + len(text[:at].encode()) for at in _occurrences(text, old)]
    if len(found) != 1:
        raise RewriteError(
            f"literals of {scope or 'the module'} hold {len(found)} times what is to be replaced: {old!r}"
        )
    return _checked(tree, _spliced(source, found[0], found[0] + len(old.encode()), new))


def _find(tree: ast.Module, scope: str) -> _Scope:
    here: _Scope = tree
    for name in filter(None, scope.split(".")):
        inner = [node for node in ast.walk(here) if isinstance(node, _Scope) and getattr(node, "name", None) == name]
        if len(inner) != 1:
            raise RewriteError(f"there are {len(inner)} definitions of {name!r} ({scope})")
        here = inner[0]
    return here


def _places(scope: _Scope, old: list[ast.stmt]) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """Yield the first and last node of every occurrence."""
    if len(old) == 1 and isinstance(old[0], ast.Expr):
        wanted = old[0].value
        for node in _outside_literals(scope):
            if isinstance(node, ast.expr) and _equal(node, wanted):
                yield node, node
        return
    for node in ast.walk(scope):
        for _, block in ast.iter_fields(node):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                for at in range(len(block) - len(old) + 1):
                    if _equal(block[at : at + len(old)], old):
                        yield block[at], block[at + len(old) - 1]


def _equal(one: object, other: object) -> bool:
    """Return whether two trees, or parts of them, are the same but for positions; it ends at the first difference."""
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.AST):
        return all(_equal(getattr(one, name, None), getattr(other, name, None)) for name in one._fields)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def _outside_literals(root: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree without those inside f-strings, whose positions Python 3.11 does not know."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):
            waiting += ast.iter_child_nodes(node)


def _literals(scope: _Scope) -> Iterator[ast.expr]:
    for node in _outside_literals(scope):
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            yield node


def _occurrences(text: str, piece: str) -> Iterator[int]:
    at = text.find(piece)
    while at >= 0:
        yield at
        at = text.find(piece, at + 1)


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _offset(source: str, line: int, column: int) -> int:
    """Return the offset in bytes of a position as the parser counts it: lines from 1, columns in UTF-8 bytes."""
    return sum(len(text.encode()) for text in source.splitlines(keepends=True)[: line - 1]) + column


def _spliced(source: str, begin: int, end: int, put: str) -> str:
    data = source.encode()
    return (data[:begin] + put.encode() + data[end:]).decode()


def _checked(tree: ast.Module, result: str) -> str:
    """Return the result, which must be another program than the tree."""
    try:
        changed = not _equal(ast.parse(result), tree)
    except SyntaxError as error:
        raise RewriteError(f"the result does not compile: {error}") from None
    if not changed:
        raise RewriteError("the result means the same")
    return result
