"""Base class of the operators and sensors that take a pipeline by its name in the ledger, or by its declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from airflow_provider_ckpt.operators.base import CkptOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger

_YAML_SUFFIXES = (".yaml", ".yml")


class CkptNamedOperator(CkptOperator):
    """Base of the operators and sensors that observe or change a pipeline which another task runs.

    :param pipeline: name of the pipeline in the ledger (templated); the declaration that the newest run stored is used.
        Or a declaration to use instead: path of a file that ends in ``.yaml`` or ``.yml``, a dict, or a ``Pipeline``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def prepare_template(self) -> None:
        """Validate the declaration, unless the pipeline is given by name."""
        if self.is_given_by_name:
            BaseOperator.prepare_template(self)
        else:
            super().prepare_template()

    def _displayed_declaration(self) -> dict[str, Any] | None:
        return None if self.is_given_by_name else super()._displayed_declaration()

    @property
    def pipeline_name(self) -> str:
        """Name of the pipeline: the given name, or the name in the given declaration.

        :raises ConfigError: if the given declaration is invalid
        """
        return str(self.pipeline) if self.is_given_by_name else super().pipeline_name

    @property
    def is_given_by_name(self) -> bool:
        """Return whether the argument ``pipeline`` is a name, so that the declaration comes from the ledger."""
        return isinstance(self.pipeline, str) and not self.pipeline.endswith(_YAML_SUFFIXES)

    def resolve_pipeline(self, ledger: Ledger) -> Pipeline:
        """Return the pipeline, from the declaration that the task was given or from the one stored in the ledger.

        :param ledger: the ledger, open
        :raises ConfigError: if the declaration is invalid, or the ledger has no declaration of a pipeline of this name
        """
        from airflow_provider_ckpt.replication.setup import stored_pipeline

        if self.is_given_by_name:
            return stored_pipeline(ledger, self.pipeline_name, instead="the task's pipeline")
        return self.load_pipeline()
