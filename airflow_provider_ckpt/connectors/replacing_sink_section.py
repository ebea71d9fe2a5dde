"""Models of the section ``sink`` for sinks that support ``mode: replace``: the mode, and the limits of a refresh."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal, Self

from pydantic import Field, model_validator

from airflow_provider_ckpt.config.fields import Section
from airflow_provider_ckpt.config.percentages import Percentage
from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.core.refresh import ReplaceLimits


class ReplaceSection(Section):
    """Section ``replace``: the limits beyond which a refresh waits for a user before it replaces the target's rows.

    :param allow_empty: whether a refresh without rows may replace a target that has rows
    :param max_shrink: greatest decrease of the number of rows, as a part of the target's rows: ``50%`` means that a
        refresh has at least half as many rows as the target
    """

    allow_empty: bool = False
    max_shrink: Percentage = Decimal("0.5")


class ReplacingSinkSection(SinkSection):
    """Section ``sink`` of a sink that can replace all rows of its target.

    :param mode: ``append``, ``upsert`` by a key, or ``replace`` of all rows by those of each run; a subclass may have
        fewer modes
    :param replace: limits of ``mode: replace``
    """

    mode: Literal["append", "upsert", "replace"] = "append"
    replace: ReplaceSection = Field(default_factory=ReplaceSection)

    @model_validator(mode="after")
    def _limits_of_mode(self) -> Self:
        if self.replace != type(self.replace)() and self.mode != "replace":
            raise ValueError("replace requires mode: replace; write that, or leave replace out")
        return self

    @property
    def replaces(self) -> ReplaceLimits | None:
        """The limits of a refresh with ``mode: replace``, None with another mode; see :attr:`SinkSection.replaces`."""
        limits = ReplaceLimits(self.replace.allow_empty, self.replace.max_shrink)
        return limits if self.mode == "replace" else None

    @property
    def may_lose_rows(self) -> bool:
        """True if the sink removes rows of the target itself (``replace``); see :attr:`SinkSection.may_lose_rows`."""
        return self.mode == "replace"
