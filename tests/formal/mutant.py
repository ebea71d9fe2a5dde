"""Define a mutant: one place of the package is rewritten, and a named property or test must fail because of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.formal.rewrite import rewrite, rewrite_text
from tests.formal.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect.

    :param file: below the package
    :param scope: the class or function that holds the place, dotted; empty for the module itself
    :param old: the code to replace, found by its syntax; with ``text``, a piece of a string literal
    :param new: the code to put there; empty to remove statements
    :param configuration: of the small search, which must then break the property ``breaks``
    :param test: a pytest node that must then fail; exactly one of the two is given
    :param text: whether ``old`` and ``new`` are pieces of a string literal, such as SQL
    """

    name: str
    file: str
    scope: str
    old: str
    new: str
    configuration: str = ""
    breaks: str = ""
    test: str = ""
    text: bool = False

    @property
    def catcher(self) -> str:
        """Return the name of the check that must catch it."""
        return self.test or f"{self.breaks} in search {self.configuration!r}"

    def applied(self, package: Path) -> str:
        """Return the source of its file with the defect.

        :param package: the package's directory
        :raises RewriteError: if the place is missing or ambiguous, or the result does not compile or means the same
        """
        source = (package / self.file).read_text("utf-8")
        return (rewrite_text if self.text else rewrite)(source, self.scope, self.old, self.new)

    def caught_in(self, sandbox: Sandbox) -> tuple[bool, str]:
        """Return whether it was caught in a sandbox that has the defect, and what was observed there."""
        if self.test:
            return sandbox.fails([self.test]), "that test"
        broken = sandbox.search(self.configuration)
        return self.breaks in broken, f"broken: {', '.join(broken) or 'nothing'}"
