"""Keys of the section ``source`` by which a table is read as a whole in each run (``mode: full``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self, cast

from pydantic import Field, ValidationError, model_validator

from airflow_provider_ckpt.config.source import SourceSection

if TYPE_CHECKING:
    from pydantic_core import InitErrorDetails


class FullSourceSection(SourceSection):
    """Section ``source`` of a table that is read either by a cursor column (new rows only) or completely in each run.

    :param mode: ``incremental`` reads in each run the rows beyond the newest ``cursor``; ``full`` reads all rows, for a
        sink with ``mode: replace``
    :param cursor: the column that orders rows and only grows; has no effect with ``mode: full``
    """

    mode: Literal["incremental", "full"] = "incremental"
    cursor: str = Field(default_factory=str)

    @model_validator(mode="after")
    def _cursor_of_mode(self) -> Self:
        if not self.is_full and not self.cursor.strip():
            empty = {"type": "value_error", "ctx": {"error": ValueError("is empty; give it a value")}}
            kind = empty if "cursor" in self.model_fields_set else {"type": "missing"}
            detail = cast("InitErrorDetails", {**kind, "loc": ("cursor",), "input": self.cursor})
            raise ValidationError.from_exception_data("source", [detail])
        if self.is_full and self.start_from != "earliest":
            raise ValueError("mode: full reads all rows; leave start_from out")
        return self

    @property
    def is_full(self) -> bool:
        """True with ``mode: full``; see :attr:`SourceSection.is_full`."""
        return self.mode == "full"
