"""Extract the code blocks of the documentation, page by page from the top, as a reader meets them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
PAGES = (*sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.rst")), "README.md")

_RST = re.compile(
    r"^(?P<indent> *)\.\. (?P<kind>code-block|literalinclude):: (?P<argument>\S+)\n"
    r"(?P<options>(?:(?P=indent)   :.*\n)*)"
    r"(?P<text>(?:(?P=indent)   .*\n|\n)*)",
    re.MULTILINE,
)
_MARKDOWN = re.compile(r"^```(?P<argument>\w*)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One block.

    :param page: its file, relative to the repository
    :param line: where it begins, from 1
    :param language: as the page says it; ``text`` where it says nothing
    :param options: the directive's, by name: ``caption`` is the name of the file that the reader makes of it
    :param included: the file that it is taken from, where the page does not hold it itself
    """

    page: str
    line: int
    language: str
    text: str
    options: dict[str, str]
    included: Path | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def caption(self) -> str:
        """The name of the file that it is to be; empty where it is none."""
        return self.options.get("caption", "")

    def replacing(self, texts: Mapping[str, str]) -> Block:
        """The same block with other texts in the place of some, in its caption, too."""
        text, caption = self.text, self.caption
        for old, new in texts.items():
            text, caption = text.replace(old, new), caption.replace(old, new)
        return replace(self, text=text, options={**self.options, "caption": caption})


def blocks_of(page: str) -> list[Block]:
    """Every block of a page, in order."""
    text = (ROOT / page).read_text("utf-8")
    found = (_RST if page.endswith(".rst") else _MARKDOWN).finditer(text)
    return [_block(page, text.count("\n", 0, match.start()) + 1, match.groupdict()) for match in found]


def every_block() -> list[Block]:
    """Those of all pages."""
    return [block for page in PAGES for block in blocks_of(page)]


def _block(page: str, line: int, found: dict[str, str | None]) -> Block:
    options = dict(re.findall(r":([\w-]+): *(.*)", found.get("options") or ""))
    argument, text = found["argument"] or "text", dedent(found["text"] or "").strip("\n") + "\n"
    if found.get("kind") == "literalinclude":
        return Block(page, line, options.pop("language", "text"), "", options, (ROOT / page).parent / argument)
    return Block(page, line, argument, text, options)
