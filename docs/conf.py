"""Sphinx's settings."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parents[1]))
from airflow_provider_ckpt import __version__
from tests import assurance

project = "airflow-provider-ckpt"
author = "the airflow-provider-ckpt authors"
copyright = author
version = release = __version__
extensions = ["sphinx.ext.autodoc"]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Checkpointed replication for Apache Airflow", "page_width": "1080px"}


def setup(app: Sphinx) -> None:
    """Put the records of proofs and benchmarks where docs/assurance.rst asks for them."""

    def insert(_: Sphinx, page: str, source: list[str]) -> None:
        if page == "assurance":
            source[0] = source[0].replace("|records|", assurance.table())

    app.connect("source-read", insert)
