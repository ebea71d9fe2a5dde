"""``PipelineLink``: from a task to the asset of its pipeline, whose events tell of runs and positions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf

from airflow_provider_ckpt.assets.pipeline import SCHEME

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
        """Where it leads; nowhere if the task failed before it knew its pipeline."""
        pipeline = getattr(operator, "linked_pipeline", None)
        if not pipeline:
            return ""
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        return f"{base}/assets?name_pattern={quote(f'{SCHEME}://{pipeline}', safe='')}"
