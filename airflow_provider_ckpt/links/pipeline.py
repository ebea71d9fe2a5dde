"""``PipelineLink``: from a task to the asset of its pipeline, whose events tell of runs and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf

from airflow_provider_ckpt.assets.pipeline import SCHEME
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey


class PipelineLink(BaseOperatorLink):
    """The list of assets, narrowed to the pipeline's own. Made when the task has ended."""

    @property
    def name(self) -> str:
        """As the task's page shows it."""
        return "Pipeline"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  # as Airflow calls it
        """Where it leads; nowhere if the task's declaration cannot be read."""
        try:
            pipeline = operator.pipeline_name  # type: ignore[attr-defined]  # of all operators that have this link
        except ConfigError:
            return ""
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        return f"{base}/assets?name_pattern={quote(f'{SCHEME}://{pipeline}', safe='')}"
