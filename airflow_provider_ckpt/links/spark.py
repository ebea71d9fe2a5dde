"""``SparkLink``: from a task to the pages of the Spark that it started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink, conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class SparkLink(BaseOperatorLink):
    """Spark's UI while the task runs, then the history server's page of it; nowhere if there is none."""

    @property
    def name(self) -> str:
        """As the task's page shows it."""
        return "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  # as Airflow calls it
        """Return the history server's page of the task's application, or an empty text if there is none."""
        application = operator.spark_application  # type: ignore[attr-defined]  # of all operators that have this link
        history = conf.get("ckpt", "spark_history_url", fallback="") or ""
        return f"{history.rstrip('/')}/history/{application}/" if history and application else ""
