"""Base class of the operators that carry out an action on a pipeline for a user, such as a rewind or a skip.

The operators call the same functions as the command line ``airflow ckpt`` and return the same result documents. While a
run holds the pipeline's lease, an action is only stored in the ledger, and that run or the next one applies it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._declaration import Declaration, find_declared
from airflow_provider_ckpt.operators._named import CkptNamedOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext
    from airflow_provider_ckpt.replication.setup import PipelineContext


class CkptActionOperator(CkptNamedOperator):
    """Base of the operators that carry out an action on a pipeline. All parameters but ``kwargs`` are templated.

    The audit log names the user who triggered the DAG run as actor, or the task's owner if no user triggered it.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator`
    :param reason: reason of the action, stored in the audit log
    :param dry_run: whether to only report what the action would change; a template may render to ``true`` or ``false``
    :param actor: actor that the audit log names instead of the DAG run's user, such as the user who approved the action
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = (*CkptNamedOperator.template_fields, "reason", "is_dry_run", "actor")
    ui_color = "#ffe7c2"
    needs_reason = False
    declarations: Path | None = None
    """Folder of YAML declarations. A pipeline whose declaration is not in the ledger is looked up there by its name."""

    def __init__(
        self,
        *,
        pipeline: Declaration,
        reason: str | None = None,
        dry_run: bool | str = False,
        actor: str | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.reason = reason
        self.is_dry_run = dry_run
        self.actor = actor

    def execute(self, context: Context) -> dict[str, Any]:
        """Carry out the action, and return its result document, as ``airflow ckpt … -o json`` prints it.

        :param context: the task's context
        :return: dict with the keys ``pipeline``, ``action``, ``applied``, ``dry_run``, ``intent`` (number of the stored
            action, or None), ``waits_for`` (lease holder that is to apply it, or None), ``before``, ``after``,
            ``actor``, ``reason`` and ``next`` (a remark for the user, or None); some actions leave keys out or add
            their own, such as ``records``, the number of dead letters
        :raises AirflowFailException: if the action is not possible in the pipeline's state; nothing was changed then
        """
        from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext

        with self.translate_errors(), open_ledger(self.ckpt_conn_id) as ledger:
            setup = partial(self._pipeline_context, context, ledger)
            dry_run = _templates.boolean("dry_run", self.is_dry_run)
            result = self.run_action(
                ActionContext(
                    ledger, self.pipeline_name, setup, self.actor_name(context), self._given_reason(), dry_run
                )
            )
            self.log.info("%s", _describe_result(result))
            return result

    @abstractmethod
    def run_action(self, context: ActionContext) -> dict[str, Any]:
        """Carry out the operator's action on the pipeline, or preview it in a dry run, and return its result document.

        :param context: ledger, pipeline, actor and reason of the action, and whether it is a dry run
        """

    def actor_name(self, context: Context) -> str:
        """Return the name of the actor for the audit log, such as ``airflow:ann``.

        :param context: the task's context, which names the user who triggered the DAG run
        """
        run = context["dag_run"]
        found = _templates.optional_text(self.actor) or run.triggering_user_name
        return f"airflow:{found}" if found else f"airflow:{self.owner} (owner of {run.dag_id})"

    def _pipeline_context(self, context: Context, ledger: Ledger) -> PipelineContext:
        """Return the pipeline's context, with which an action opens source or sink.

        :param context: the task's context
        :param ledger: the ledger, open
        :raises ConfigError: if neither the ledger nor the folder :attr:`declarations` has a declaration of the pipeline
        """
        name = self.pipeline_name
        if self.declarations is None or (name in ledger.pipelines() and ledger.status(name)["declaration"] is not None):
            return self.setup(context, ledger, self.resolve_pipeline(ledger))
        pipeline = find_declared(self.declarations, name)
        if pipeline is None:
            raise ConfigError(
                f"neither the ledger nor a file of the folder {self.declarations.name} declares the pipeline.",
                pipeline=name,
                hint="Add a file that declares it under this name. A table of a declaration of many tables needs a "
                "file of its own there until its first run.",
            )
        return self.setup(context, ledger, pipeline)

    def _given_reason(self) -> str | None:
        """Return the reason that the user gave, or None.

        :raises ConfigError: if the action needs a reason and none was given
        """
        given = (_templates.free_text(self.reason) or "").strip()
        if self.needs_reason and not given:
            raise ConfigError(
                f"task {self.task_id} needs a reason.", hint="Give it with `reason`; the audit log stores it."
            )
        return given or None


def _describe_result(result: dict[str, Any]) -> str:
    """Return one line for the task's log that describes an action's result: ``release of pipeline orders: done``.

    :param result: the action's result document
    """
    what = f"{result.get('action', 'recover')} of pipeline {result['pipeline']}"
    if result["dry_run"]:
        return f"{what}: a dry run, nothing was changed"
    if result.get("intent") is not None:
        return f"{what}: stored as action {result['intent']}, for the run that holds the lease or the next one"
    return f"{what}: {'done' if result['applied'] else 'there was nothing to do'}"
