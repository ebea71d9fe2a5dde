"""``CkptBrokenPipelineOperator``: fail with the error of an invalid declaration, in place of the pipeline's task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context


class CkptBrokenPipelineOperator(BaseOperator):
    """Fail with the error message of a pipeline's invalid YAML file.

    :param error: error message: file, line, key, and what to write instead
    :param kwargs: further arguments of ``BaseOperator``
    """

    ui_color = "#ffb3b3"

    def __init__(self, *, error: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    def execute(self, context: Context) -> NoReturn:
        """Fail the task without retries, with the error of the pipeline's declaration.

        :raises AirflowFailException: always
        """
        del context
        raise AirflowFailException(self.error)
