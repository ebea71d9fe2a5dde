"""Common functions of the triggers: call a function with the open ledger, and serialize a trigger for Airflow.

The ledger is opened for each read, so that a long wait keeps no connection open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_ckpt.ledger_location import open_ledger, resolve_connection

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext

_Seen = TypeVar("_Seen")


def serialized(trigger: BaseTrigger, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Return the import path of a trigger's class and its arguments.

    Airflow stores both, and creates the trigger from them in the triggerer.

    :param trigger: the trigger
    :param arguments: names of the constructor's arguments, each of which is also an attribute
    """
    return f"{type(trigger).__module__}.{type(trigger).__name__}", {name: getattr(trigger, name) for name in arguments}


def call_with_ledger(
    ckpt_conn_id: str,
    pipeline: str,
    declaration: Mapping[str, Any] | None,
    read: Callable[[Ledger, Callable[[], PipelineContext]], _Seen],
) -> _Seen:
    """Open the ledger, call a function with it, close it again, and return the function's result.

    :param ckpt_conn_id: Airflow connection of the ledger
    :param pipeline: name of the pipeline
    :param declaration: declaration of the pipeline; None for the declaration that its newest run stored
    :param read: function that is called once, with the open ledger and a function that it may call to get the
        pipeline's context, with which the source can be read
    :return: the result of ``read``
    :raises CkptError: if ledger or source cannot be reached, or the ledger does not know the pipeline
    """
    with open_ledger(ckpt_conn_id) as ledger:

        def setup() -> PipelineContext:
            from airflow_provider_ckpt.config.load import build
            from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
            from airflow_provider_ckpt.replication.setup import PipelineContext, stored_pipeline

            if declaration is None:
                found = stored_pipeline(ledger, pipeline, instead="pipeline")
            else:
                found = build(declaration, f"the declaration of {pipeline}")
            return PipelineContext(found, ledger, resolve_connection, of_this_process())

        return read(ledger, setup)
