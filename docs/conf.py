"""Sphinx's settings."""

from __future__ import annotations

from airflow_provider_ckpt import __version__

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
