"""``CkptCarryOutOperator``: do what was previewed and approved; ``CkptReportOperator``: say what became of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.operators.act import CkptActOperator
from airflow_provider_ckpt.operators.approval import ANSWER
from airflow_provider_ckpt.operators.named import CkptNamedOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.replication.acting import Errand


class CkptCarryOutOperator(CkptActOperator):
    """Carry out the very act that :class:`CkptPreviewOperator` proposed, in the name of whoever approved it.

    Returns the act's document. The reason in the audit trail also names who asked, where that was somebody else.

    :param preview: id of the preview's task
    :param approval: id of the approval's task
    """

    def __init__(self, *, preview: str, approval: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.preview = preview
        self.approval = approval
        self._previewed: dict[str, Any] = {}

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it.

        :raises AirflowFailException: if nobody has approved, or what was approved no longer fits; nothing was changed
        """
        pull = context["ti"].xcom_pull
        answer = pull(task_ids=self.approval, key=ANSWER)
        if not (answer and answer["approved"] and answer["user"]):
            raise AirflowFailException(
                f"Task {self.approval} holds no person's approval ({_heard(answer)}); nothing was changed. "
                f"A task that was marked a success by hand approves nothing: clear {self.approval}, and answer it."
            )
        self._previewed = pull(task_ids=self.preview)
        self.who = answer["user"]
        return super().execute(context)

    def act(self, errand: Errand) -> dict[str, Any]:
        """Do it."""
        from airflow_provider_ckpt.core.acts import Act
        from airflow_provider_ckpt.replication.proposing import carry_out

        asked_by, reason = self._previewed["who"], self._previewed["reason"]
        if asked_by != errand.who:
            reason = f"{reason} (asked for by {asked_by})"
        return carry_out(replace(errand, why=reason), Act.from_json(self._previewed["proposal"]))


class CkptReportOperator(CkptNamedOperator):
    """Say what became of a proposal: done, stored, rejected, or only looked at; and where the pipeline stands now.

    Returns ``{"outcome", "pipeline", "phase", "checkpoint", "batches", "dead_letters", "next"}``.

    :param preview: id of the preview's task
    :param approval: id of the approval's task
    :param carried_out: id of the task that carries it out
    """

    def __init__(self, *, preview: str, approval: str, carried_out: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.preview = preview
        self.approval = approval
        self.carried_out = carried_out

    def execute(self, context: Context) -> dict[str, Any]:
        """Run it."""
        from airflow_provider_ckpt.ledger_location import open_ledger

        pull = context["ti"].xcom_pull
        previewed, done = pull(task_ids=self.preview), pull(task_ids=self.carried_out)
        answer = pull(task_ids=self.approval, key=ANSWER)
        with self.errors(), open_ledger(self.ckpt_conn_id) as ledger:
            status = ledger.status(previewed["pipeline"])
        report = {
            "outcome": outcome(previewed, answer, done),
            "pipeline": previewed["pipeline"],
            "phase": status["phase"],
            "checkpoint": {part["id"]: part["committed"] for part in status["partitions"]},
            "batches": status["batches"],
            "dead_letters": status["dead_letters"],
            "next": done and done["next"],
        }
        self.log.info("%s of pipeline %s: %s", previewed["act"], previewed["pipeline"], report["outcome"])
        self.log.info("The pipeline now: %s", {name: report[name] for name in ("phase", "checkpoint", "batches")})
        return report


def outcome(previewed: dict[str, Any], answer: dict[str, Any] | None, done: dict[str, Any] | None) -> str:
    """What became of a proposal, in words.

    :param answer: of whoever was asked, None if nobody was
    :param done: the document of what was carried out, None if nothing was
    """
    if done is not None:
        if done["applied"]:
            return f"done, approved by {done['who']}"
        holder = (done["waits_for"] or {}).get("owner") or "a run that has ended by now"
        return f"stored as number {done['intent']}, approved by {done['who']}; it waits for {holder} or the next run"
    if previewed["proposal"] is None:
        return "there was nothing to do"
    if answer is None:
        return "a dry run, nothing was changed"
    return f"{_heard(answer)}, nothing was changed"


def _heard(answer: dict[str, Any] | None) -> str:
    """What was answered where nobody has approved."""
    if answer is None:
        return "no answer"
    if answer["user"]:
        return f"rejected by {answer['user']}"
    return "approved by nobody" if answer["approved"] else "not answered in time"
