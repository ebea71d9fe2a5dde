"""``PipelineLink``: link from a task to the asset of its pipeline, whose events contain runs and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperatorLink

from airflow_provider_ckpt.assets.pipeline import SCHEME
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey
    from airflow.sdk import BaseOperator


class PipelineLink(BaseOperatorLink):
    """Link from a task's page to Airflow's list of assets, filtered by the asset of the task's pipeline.

    The events of the asset show the pipeline's runs and positions. Airflow creates the link when the task has ended.
    """

    @property
    def name(self) -> str:
        """Label of the link on the task's page."""
        return "Pipeline"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  # as Airflow calls it
        """Return the URL of the link; empty if the task's declaration of the pipeline is invalid.

        :param operator: operator of the task
        :param ti_key: key of the task instance; not used
        """
        try:
            pipeline = operator.pipeline_name  # type: ignore[attr-defined]  # all operators with this link have it
        except ConfigError:
            return ""
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        return f"{base}/assets?name_pattern={quote(f'{SCHEME}://{pipeline}', safe='')}"
