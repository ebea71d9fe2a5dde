"""What the operators share by which a person changes a pipeline: which one is meant, who asks, and why.

They call what ``airflow ckpt`` calls and return the same document. While a run holds the lease the act is stored, and
the holder or the next run applies it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import open_ledger
from airflow_provider_ckpt.operators import _templates
from airflow_provider_ckpt.operators._named import CkptNamedOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.actions.actions import Errand
    from airflow_provider_ckpt.replication.setup import Setup


class CkptActOperator(CkptNamedOperator):
    """Base of the operators that carry out a person's act. All of its fields may be templates.

    The audit trail names the user who triggered the DAG run; of a run that nobody triggered, the task's owner.

    :param pipeline: the name by which the ledger knows it, or a declaration, see :class:`CkptNamedOperator`
    :param reason: why; kept in the audit trail
    :param dry_run: say what would change, and change nothing; a template may render to ``true`` or ``false``
    :param who: names somebody else than the DAG run's user, such as whoever approved it
    :param ckpt_conn_id: the ledger's connection
    """

    template_fields: Sequence[str] = (*CkptNamedOperator.template_fields, "reason", "is_dry_run", "who")
    ui_color = "#ffe7c2"
    needs_reason = False

    def __init__(
        self, *, reason: str | None = None, dry_run: bool | str = False, who: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.reason = reason
        self.is_dry_run = dry_run
        self.who = who

    def execute(self, context: Context) -> dict[str, Any]:
        """Carry it out.

        :returns: ``{"pipeline", "act", "applied", "dry_run", "intent", "waits_for", "before", "after", "who", "reason",
            "next"}``, as the command line's ``-o json``
        :raises AirflowFailException: if it does not fit; nothing was changed then
        """
        from airflow_provider_ckpt.replication.actions.actions import Errand

        with self.errors(), open_ledger(self.ckpt_conn_id) as ledger:
            setup = partial(self._setup_act, context, ledger)
            dry_run = _templates.flag("dry_run", self.is_dry_run)
            result = self.act(Errand(ledger, self.pipeline_name, setup, self.person(context), self._why(), dry_run))
            self.log.info("%s", _told(result))
            return result

    @abstractmethod
    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it; the document that says what became of it."""

    def person(self, context: Context) -> str:
        """Who is named in the audit trail."""
        run = context["dag_run"]
        found = _templates.word(self.who) or run.triggering_user_name
        return f"airflow:{found}" if found else f"airflow:{self.owner} (owner of {run.dag_id})"

    def _setup_act(self, context: Context, ledger: Ledger) -> Setup:
        return self.setup(context, ledger, self.declared(ledger))

    def _why(self) -> str | None:
        given = (_templates.text(self.reason) or "").strip()
        if self.needs_reason and not given:
            raise ConfigError(
                f"task {self.task_id} needs a reason.", hint="Say why with `reason`; the audit trail keeps it."
            )
        return given or None


def _told(result: dict[str, Any]) -> str:
    """One line for the task's log."""
    what = f"{result.get('act', 'recover')} of pipeline {result['pipeline']}"
    if result["dry_run"]:
        return f"{what}: a dry run, nothing was changed"
    if result.get("intent") is not None:
        return f"{what}: stored as number {result['intent']}, for the run that holds the lease or the next one"
    return f"{what}: {'done' if result['applied'] else 'there was nothing to do'}"
