"""Model of the section ``consumer`` of a declaration: number of lanes, and distribution of batches over them."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from airflow_provider_ckpt.config.fields import Section, WholeNumber


class Consumer(Section):
    """Distribution of batches over lanes.

    :param strategy: ``pinned`` executes a partition's batches in one lane, in order; ``round_robin`` distributes them
        over all lanes; ``single`` uses one lane; ``auto`` is ``pinned`` if source or sink require order, else
        ``round_robin``
    :param lanes: number of lanes; ``auto`` uses the number of cores of the Spark master
    :param max_in_flight: maximum number of records in batches that have no verdict, whether started or not; while it is
        reached, no more batches are planned
    """

    strategy: Literal["auto", "pinned", "round_robin", "single"] = "auto"
    lanes: Literal["auto"] | WholeNumber = "auto"
    max_in_flight: WholeNumber = Field(default=500_000, ge=1)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if isinstance(self.lanes, int) and self.lanes < 1:
            raise ValueError("lanes must be at least 1")
        return self

    def lane_count(self, cores: int) -> int:
        """Return the maximum number of lanes of a wave.

        :param cores: number of cores of the Spark master, the number of lanes with ``auto``
        """
        if self.strategy == "single":
            return 1
        return cores if self.lanes == "auto" else self.lanes

    def is_pinned(self, *, needs_order: bool) -> bool:
        """Return whether a partition's batches are executed in one lane, in order.

        :param needs_order: whether source or sink require that order; it decides the result if ``strategy`` is ``auto``
        """
        return needs_order if self.strategy == "auto" else self.strategy != "round_robin"
