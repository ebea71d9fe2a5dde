"""Values that a column would round or cut without a word: each is an error of its own instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.common import literal
from airflow_provider_ckpt.connectors.postgres.table import Column

if TYPE_CHECKING:
    import pyarrow as pa

MISFIT = "ckpt: "
"""Begins what a value is told by that its column cannot keep; the server puts its own words around it."""

NAME_BYTES = 63
"""The longest value of type ``name``."""

_SHOWN = 200
"""Characters of such a value that are shown."""

_MICROSECOND_DIGITS = 6


def exact_value(column: Column, value: str, given: str) -> str:
    """SQL for a value that the column can keep without loss; of any other, an error with :data:`MISFIT` in it.

    :param value: of the column's type without a length
    :param given: as it was before it was cast
    """
    if column.base_type == "name":
        lost = f"octet_length(CAST({given} AS text)) > {NAME_BYTES}"
    elif column.fitting is not None:
        lost = f"{column.fitted(value)} IS DISTINCT FROM {value}"
    else:
        return value
    told = literal(f'{MISFIT}column {column.name} cannot keep all of "')
    told = f"{told} || left(CAST({value} AS text), {_SHOWN}) || '\"'"
    return f"CASE WHEN {lost} THEN CAST(CAST(CAST({told} AS integer) AS text) AS {column.type_sql}) ELSE {value} END"


def may_lose(column: Column, kind: pa.DataType) -> bool:
    """Whether the server would round values of this type without a word as it reads their binary form."""
    import pyarrow as pa

    if column.receive in ("timestamp_recv", "timestamptz_recv"):
        return 0 <= column.modifier < _MICROSECOND_DIGITS
    if column.receive != "numeric_recv" or column.modifier < 0:
        return False
    scale = numeric_scale(column.modifier)
    return scale < 0 or (pa.types.is_decimal(kind) and kind.scale > scale)


def numeric_scale(modifier: int) -> int:
    """The scale of ``numeric(p, s)``, which may be negative, from the column's type modifier."""
    return (((modifier - 4) & 0x7FF) ^ 0x400) - 0x400


def short_texts(array: Any, *, pc_function: str, most: int) -> Any:
    """Texts of which none is longer; a longer one may end in blanks that the server would take away without a word."""
    import pyarrow as pa
    import pyarrow.compute as pc

    longest = pc.max(pc.call_function(pc_function, [array])).as_py()
    if longest is not None and longest > most:
        raise pa.ArrowInvalid("a text that is too long")
    return array if array.type == pa.string() else array.cast(pa.string())
