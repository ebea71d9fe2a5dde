"""Define the section ``lease`` of a declaration: validity of the lease, and reaction while another run holds it.

:mod:`airflow_provider_ckpt.core.lease` decides who gets the lease.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, Self

from pydantic import model_validator

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import Section


class LeaseSection(Section):
    """Lease of a pipeline, which admits one run at a time.

    :param ttl: time without a renewal after which another run may take the lease over
    :param on_busy: reaction while another run holds the lease: ``wait`` until it is released, or ``fail`` at once
    :param wait: maximum waiting time of ``on_busy: wait``; afterwards the run fails
    """

    ttl: Duration = timedelta(seconds=60)
    on_busy: Literal["wait", "fail"] = "wait"
    wait: Duration = timedelta(minutes=30)

    @model_validator(mode="after")
    def _floor(self) -> Self:
        if self.ttl < timedelta(seconds=1):
            raise ValueError("ttl must be at least 1s: the lease is renewed every third of it")
        return self
