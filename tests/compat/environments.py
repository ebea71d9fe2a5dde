"""Environments of ``make compat``: the combinations of Airflow, PySpark and Python versions that are tested."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Environment:
    """Versions that are installed together.

    :param python: the version of Python; another supported one is taken where the machine does not have it
    :param constraints: further constraints, as pip has them
    :param lowest: whether the package's own requirements are installed in the lowest versions that they accept
    """

    name: str
    airflow: str
    pyspark: str
    python: str
    constraints: Sequence[str] = ()
    lowest: bool = False

    @property
    def documented(self) -> tuple[str, str, str, str]:
        """Row of this environment in the table of the install page."""
        others = "the lowest versions that this package accepts" if self.lowest else "the newest"
        return self.airflow, self.pyspark, self.python, others


ENVIRONMENTS = (
    # Before 6.0 Airflow's Spark provider requires pyspark itself, without pyspark-client.
    Environment("oldest", "3.1.8", "4.0.5", "3.11", ["apache-airflow-providers-apache-spark<6"], lowest=True),
    # The DAG processor of Airflow 3.2.2 does not start with Pydantic 2.14, nor yet with 2.13 and the rest of these.
    Environment("older", "3.2.2", "4.1.4", "3.12", ["pydantic<2.14"]),
    Environment("newer", "3.3.2", "4.2.1", "3.13"),
    Environment("newest", "3.3.2", "4.3.0", "3.13"),
)
"""The newest patch of each supported minor version of Airflow and PySpark, in at least one environment."""
