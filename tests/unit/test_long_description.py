"""The long description of the wheel is README.md without links into the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def description() -> str:
    """Return the text as the build backend makes it."""
    return str(ProjectMetadata(str(ROOT), PluginManager()).core.readme)


def test_it_holds_no_relative_link_and_no_picture(description: str) -> None:
    links = re.findall(r"!?\[[^\]]*\]\(([^)]*)\)", description)

    assert [link for link in links if not link.startswith("https://")] == []
    assert not re.search(r"<!--|<img|docs/img", description)


def test_it_keeps_the_text(description: str) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)

    assert blocks.findall(description) == blocks.findall(readme)
    assert "The tutorial takes ten minutes" in description
