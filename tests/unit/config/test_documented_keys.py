"""The examples in the documentation are valid, and every key is documented with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.config.typed_sections import models_of_all_types
from airflow_provider_ckpt.config.warnings import warnings

ROOT = Path(__file__).parents[3]


def keys(model: type[BaseModel]) -> Iterator[tuple[str, object]]:
    """Every key with its default, those of the parts and of all types of source and sink included."""
    for name, field in model.model_fields.items():
        part = field.annotation
        if isinstance(part, type) and issubclass(part, ConnectorSection):
            for of_type in models_of_all_types(part.side).values():
                yield from keys(of_type)
        elif isinstance(part, type) and issubclass(part, BaseModel):
            yield from keys(part)
        else:
            yield field.alias or name, field.default


@pytest.mark.parametrize("file", sorted((ROOT / "dags/pipelines").glob("*.yaml")), ids=lambda file: file.name)
def test_the_files_that_a_user_would_copy_are_pipelines(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLIGHTS_FILES", "/in")
    monkeypatch.setenv("FLIGHTS_TABLE", "/out")

    assert warnings(load(file)) == []


def test_every_key_is_documented() -> None:
    reference = (ROOT / "docs/pipeline.rst").read_text("utf-8")
    documented = set(re.findall(r"``(?:\w+\.)?(\w+)``", reference))

    assert {key for key, _ in keys(Pipeline)} - documented == set()


def test_numbers_and_texts_among_the_defaults_are_those_of_the_code() -> None:
    reference = (ROOT / "docs/pipeline.rst").read_text("utf-8")
    plain = [(key, default) for key, default in keys(Pipeline) if isinstance(default, int | float | str)]

    for key, default in plain:
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        assert re.search(rf"``(?:\w+\.)?{key}``.*\n     - [^\n]*``{re.escape(shown)}``", reference), key
