"""Rewriting by syntax does not depend on the layout; an ambiguous place or a change without effect is an error."""

from __future__ import annotations

import pytest

from tests.formal.rewrite import RewriteError, rewrite, rewrite_text

SOURCE = """
class Till:
    def add(self, item: int) -> None:
        # Ünïcode before the place, so that offsets in bytes and characters differ: é
        name = "é"; self.total = (  # a comment
            self.total
            + item
        )
        if item > 3:
            self.many += 1
            self.large += 1

    def take(self, item: int) -> str:
        self.total = self.total + item
        return f"SELECT {item} FROM till"
"""


def test_an_expression_is_found_whatever_its_layout() -> None:
    assert "= ((self.total - item))" in rewrite(SOURCE, "Till.add", "self.total + item", "self.total - item").replace(
        "(  # a comment\n            (self.total - item)\n        )", "((self.total - item))"
    )


def test_a_run_of_statements_is_replaced_with_its_indentation() -> None:
    result = rewrite(SOURCE, "Till.add", "self.many += 1\nself.large += 1", "if item:\n    self.many += 2")

    assert "        if item > 3:\n            if item:\n                self.many += 2\n" in result


def test_removed_statements_leave_a_valid_block() -> None:
    assert "if item > 3:\n            pass\n" in rewrite(SOURCE, "Till.add", "self.many += 1\nself.large += 1", "")


def test_a_piece_of_a_literal_is_replaced() -> None:
    assert 'f"SELECT {item + 1} FROM till"' in rewrite_text(SOURCE, "Till.take", "{item}", "{item + 1}")


@pytest.mark.parametrize(
    ("scope", "old", "new", "message"),
    [
        ("Till", "self.total + item", "0", "holds 2 times"),
        ("Till.add", "self.total * item", "0", "holds 0 times"),
        ("Till.gone", "self.total + item", "0", "0 definitions of 'gone'"),
        ("Till.add", "self.total + item", "self . total+item", "means the same"),
        ("Till.add", "self.total + item", "self.total +", "does not compile"),
    ],
)
def test_what_cannot_be_done_is_an_error(scope: str, old: str, new: str, message: str) -> None:
    with pytest.raises(RewriteError, match=message):
        rewrite(SOURCE, scope, old, new)


def test_a_piece_that_stands_twice_in_literals_is_an_error() -> None:
    with pytest.raises(RewriteError, match="hold 2 times"):
        rewrite_text(SOURCE, "", "E", "e")
