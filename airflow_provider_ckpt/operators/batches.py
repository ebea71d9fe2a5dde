"""``CkptReleaseOperator`` and ``CkptSkipOperator``: what a person decides about single batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._action import CkptActOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.actions.actions import Errand


class _CkptBatchesOperator(CkptActOperator):
    template_fields: Sequence[str] = (*CkptActOperator.template_fields, "batches")

    def __init__(self, *, batches: Sequence[str] | str = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.batches = batches


class CkptReleaseOperator(_CkptBatchesOperator):
    """Give held batches their attempts back; the next run tries them again.

    :param batches: which (``partition#seq``); all that are held if none is named
    """

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.replication.actions.actions import batch_keys, in_ledger

        keys = batch_keys(_templates.texts("batches", self.batches))
        return in_ledger(errand, Act(ActKind.RELEASE, keys))


class CkptSkipOperator(_CkptBatchesOperator):
    """Give batches up: their records are not delivered, and the checkpoint may pass them. Needs a ``reason``.

    A batch that was ever begun is skipped by claiming ``void`` in the sink, which the next run does; if it was
    delivered after all, its receipt stands.

    :param batches: which (``partition#seq``); at least one
    """

    needs_reason = True

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.replication.actions.actions import skip

        chosen = _templates.texts("batches", self.batches)
        if not chosen:
            raise ConfigError("name the batches to skip.", pipeline=errand.pipeline)
        return skip(errand, chosen)
