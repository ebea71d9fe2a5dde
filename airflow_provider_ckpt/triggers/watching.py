"""How a trigger looks at a pipeline: with a ledger of its own each time, so that a long wait holds none open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_provider_ckpt.ledger_location import open_ledger, resolve_connection

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import Setup

_Seen = TypeVar("_Seen")


def look(
    ckpt_conn_id: str,
    pipeline: str,
    declaration: Mapping[str, Any] | None,
    see: Callable[[Ledger, Callable[[], Setup]], _Seen],
) -> _Seen:
    """Open the ledger, look, and close it again.

    :param declaration: the pipeline's; the one that its newest run stored if None
    :param see: gets the ledger, and what makes the set-up of the pipeline where the source must be asked
    :raises CkptError: if ledger or source cannot be reached, or do not know the pipeline
    """
    with open_ledger(ckpt_conn_id) as ledger:

        def setup() -> Setup:
            from airflow_provider_ckpt.config.load import build
            from airflow_provider_ckpt.replication.owner import of_this_process
            from airflow_provider_ckpt.replication.setup import Setup, stored_pipeline

            if declaration is None:
                found = stored_pipeline(ledger, pipeline, instead="pipeline")
            else:
                found = build(declaration, f"the declaration of {pipeline}")
            return Setup(found, ledger, resolve_connection, of_this_process())

        return see(ledger, setup)
