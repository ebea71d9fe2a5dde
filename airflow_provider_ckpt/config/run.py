"""Define the section ``run`` of a declaration: the Spark that executes a run, its time budget, and held batches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from airflow_provider_ckpt.config.durations import Duration
from airflow_provider_ckpt.config.fields import Section, TextMapping


def _default_engine(given: dict[str, Any]) -> Literal["warm", "submit"]:
    return "submit" if given.get("connection") else "warm"


class RunSection(Section):
    """Section ``run`` of a declaration: which Spark executes a run, for how long, and whether held batches fail it.

    :param engine: ``warm`` shares a local Spark that stays on the machine between runs, ``submit`` starts a Spark for
        each run by the apache-spark provider's hook, ``connect`` uses a Spark Connect server; by default ``submit`` if
        a connection is given, else ``warm``
    :param connection: id of the Spark connection; without a connection, ``submit`` starts a local master
    :param time_budget: time after which no further wave begins; remaining work waits for the next run
    :param fail_on_hold: whether a run that ends with held batches fails
    :param conf: additional Spark properties
    """

    connection: str | None = None
    engine: Literal["warm", "submit", "connect"] = Field(default_factory=_default_engine)
    time_budget: Duration = timedelta(hours=1)
    fail_on_hold: bool = True
    conf: TextMapping = Field(default_factory=dict)

    @model_validator(mode="after")
    def _server_named(self) -> Self:
        if self.engine == "connect" and self.connection is None:
            raise ValueError("engine: connect needs connection, the id of one of type spark_connect")
        if self.engine == "warm" and self.connection is not None:
            raise ValueError("engine: warm runs on this machine; leave connection out, or write engine: submit")
        return self
