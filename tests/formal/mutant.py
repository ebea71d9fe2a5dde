"""A deliberate defect: an exact replacement in one file, and the property or test that must catch it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.formal.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Mutant:
    """One defect.

    :param file: below the package
    :param old: the text to replace; it stands there exactly once
    :param configuration: of the small search, which must then break the property ``breaks``
    :param test: a pytest node that must then fail; exactly one of the two is given
    """

    name: str
    file: str
    old: str
    new: str
    configuration: str = ""
    breaks: str = ""
    test: str = ""

    @property
    def catcher(self) -> str:
        """What must catch it."""
        return self.test or f"{self.breaks} in search {self.configuration!r}"

    def caught_in(self, sandbox: Sandbox) -> tuple[bool, str]:
        """Whether it was caught in a sandbox that has the defect, and what was seen there."""
        if self.test:
            return sandbox.fails([self.test]), "that test"
        broken = sandbox.search(self.configuration)
        return self.breaks in broken, f"broken: {', '.join(broken) or 'nothing'}"
