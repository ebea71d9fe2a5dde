"""Sphinx configuration."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))
from airflow_provider_ckpt import __version__
from tests import assurance, capacity_figures

# Furo imports code styles (accessible-pygments) that make the root logger print what Airflow logs at INFO, unless it
# has a handler; this one prints warnings, as Python does without any.
assert logging.lastResort
logging.getLogger().addHandler(logging.lastResort)

project = "airflow-provider-ckpt"
author = "The airflow-provider-ckpt authors"
copyright = author
version = release = __version__
extensions = ["sphinx.ext.autodoc", "myst_parser", "sphinx_copybutton", "sphinx_design"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries = False
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"{project} {version}"
html_logo = "img/logo.svg"
html_favicon = html_logo
html_static_path = ["_static"]
html_css_files = ["ckpt.css"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1a6fb5", "color-brand-content": "#1a6fb5"},
    "dark_css_variables": {"color-brand-primary": "#6cb2f5", "color-brand-content": "#6cb2f5"},
}
# The copy button leaves out the prompt and whatever a command writes.
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
copybutton_here_doc_delimiter = "EOF"


def setup(app: Sphinx) -> None:
    """Replace ``|records|`` and the like in assurance.rst, comparison.rst and capacity.rst by recorded figures."""

    def insert(_: Sphinx, page: str, source: list[str]) -> None:
        if page == "assurance":
            source[0] = source[0].replace("|records|", assurance.table())
        if page == "comparison":
            source[0] = source[0].replace("|peers|", assurance.comparison())
        if page == "capacity":
            source[0] = capacity_figures.insert(source[0])

    app.connect("source-read", insert)
