"""``SparkLink``: link from a task to the web UI of the Spark application that runs its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey
    from airflow.sdk import BaseOperator


class SparkLink(BaseOperatorLink):
    """Link from a task's page to the web UI of its Spark application.

    While the task runs, the link leads to Spark's own UI, whose address the operator pushes to XCom; afterwards it
    leads to the application's page in the history server.
    """

    @property
    def name(self) -> str:
        """Label of the link on the task's page."""
        return "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  # as Airflow calls it
        """Return the URL of the application's page in the history server.

        Airflow asks for this URL when the task has ended. The URL is empty if no history server is configured (``[ckpt]
        spark_history_url``) or the task has started no application.

        :param operator: operator of the task, which has stored the application's id
        :param ti_key: key of the task instance; not used
        """
        application = operator.spark_application  # type: ignore[attr-defined]  # all operators with this link have it
        history = conf.get("ckpt", "spark_history_url", fallback="") or ""
        return f"{history.rstrip('/')}/history/{application}/" if history and application else ""
