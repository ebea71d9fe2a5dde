"""Expansion of environment variables in YAML values."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.config.load import parse
from airflow_provider_ckpt.config.variables import expand
from airflow_provider_ckpt.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${HOME_OF_FILES}/new", "/data/new"),
        ("${MISSING:-/default}", "/default"),
        ("${MISSING:-}", ""),
        ("${HOME_OF_FILES:-/default}", "/data"),
        ("$${HOME_OF_FILES}", "${HOME_OF_FILES}"),
        ("costs 5$ and $x", "costs 5$ and $x"),
    ],
)
def test_a_variable_becomes_its_value(text: str, expanded: str) -> None:
    assert expand(text, {"HOME_OF_FILES": "/data"}) == expanded


def test_a_variable_that_is_not_set_is_an_error_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    text = "name: p\nsource:\n  type: files\n  path: ${NOWHERE}\n"

    with pytest.raises(ConfigError, match=r"p.yaml:4: source.path: the environment variable NOWHERE is not set"):
        parse(text, "p.yaml")
