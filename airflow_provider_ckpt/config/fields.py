"""Define types of fields in a declaration, such as whole numbers and column names, and the base of its sections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from airflow_provider_ckpt.config.characters import for_message


def _not_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


WholeNumber = Annotated[int, BeforeValidator(_not_bool), Field(le=2**63 - 1)]
"""A whole number that fits a 64-bit column; ``true``, which pydantic alone would read as 1, is refused."""

Milliseconds = Annotated[int, BeforeValidator(_not_bool), Field(le=2**31 - 1)]
"""A number of milliseconds, 24 days at most; ``true`` and ``false`` are refused."""

Number = Annotated[float, BeforeValidator(_not_bool)]
"""A number with or without decimals; ``true`` and ``false`` are refused."""


class Section(BaseModel):
    """Base class of all sections of a pipeline's declaration.

    A section is immutable, and an unknown key is an error.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _values_as_text(values: object) -> object:
    """Return a mapping whose numbers and booleans are replaced by text as in YAML: ``true`` for True, ``4`` for 4.

    A value that is not a mapping is returned unchanged, so that pydantic reports it as an error.
    """
    if not isinstance(values, Mapping):
        return values
    return {key: _value_as_text(value) for key, value in values.items()}


def _value_as_text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) and math.isfinite(value) else value


TextMapping = Annotated[dict[str, str], BeforeValidator(_values_as_text)]
"""A mapping from text to text; numbers and booleans among the values are converted to text."""


def _distinct_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for at, name in enumerate(names):
        if not name.strip():
            raise ValueError("holds an empty name; leave it out")
        if name in names[:at]:
            raise ValueError(f"names {for_message(name)} twice; leave one out")
    return names


ColumnNames = Annotated[tuple[str, ...], AfterValidator(_distinct_names)]
"""Names of columns; an empty or repeated name is an error."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; give it a value")
    return text


RequiredText = Annotated[str, AfterValidator(_not_blank)]
"""A text that is not empty or blank, for a key without a default."""
