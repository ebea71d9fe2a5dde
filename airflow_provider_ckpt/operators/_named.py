"""A task on a pipeline that may be given by name: then its declaration is the one that its newest run stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_ckpt.operators.base import CkptOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger

_FILES = (".yaml", ".yml")


class CkptNamedOperator(CkptOperator):
    """Base of what looks after a pipeline that runs elsewhere.

    :param pipeline: the name by which the ledger knows it, or a declaration (a YAML file, a dict, a ``Pipeline``) that
        stands in for the one that its newest run stored
    """

    def prepare_template(self) -> None:
        """Judge the declaration, if there is one."""
        if self.is_named:
            BaseOperator.prepare_template(self)
        else:
            super().prepare_template()

    def _shown(self) -> dict[str, Any] | None:
        return None if self.is_named else super()._shown()

    @property
    def pipeline_name(self) -> str:
        """The name of the pipeline that is meant; of one that is named it is all that a task needs to know."""
        return str(self.pipeline) if self.is_named else super().pipeline_name

    @property
    def is_named(self) -> bool:
        """Whether only the ledger knows its declaration."""
        return isinstance(self.pipeline, str) and not self.pipeline.endswith(_FILES)

    def declared(self, ledger: Ledger) -> Pipeline:
        """Its declaration.

        :raises ConfigError: if it is wrong, or is named and the ledger holds none
        """
        from airflow_provider_ckpt.replication.setup import stored_pipeline

        if self.is_named:
            return stored_pipeline(ledger, self.pipeline_name, instead="the task's pipeline")
        return self.load_pipeline()
