"""Write floating-point numbers as texts, in which NaN and the infinities have the names that readers accept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def has_only_finite(column: pa.ChunkedArray) -> bool:
    """Return whether a column of floats has neither NaN nor an infinity; NULL counts as finite."""
    import pyarrow.compute as pc

    return pc.all(pc.is_finite(column)).as_py() is not False


def to_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of floats as texts, with ``NaN``, ``Infinity`` and ``-Infinity`` for Arrow's ``nan`` and ``inf``.

    These are the names that Spark and PostgreSQL write, and the only ones that most readers of CSV accept.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.replace_substring(column.cast(pa.string()), "nan", "NaN")
    return pc.replace_substring(texts, "inf", "Infinity")
