"""``CkptNotifier``: notify users of dead letters, held batches, expired ranges and failures, through any channel.

An expired range has no receipt and can no longer be read or recovered: the source's retention or the recovery window
has passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseNotifier

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, resolve_connection
from airflow_provider_ckpt.notifications.notice import Notice, Reason

if TYPE_CHECKING:
    from airflow.sdk import Context

Channel = BaseNotifier | Callable[..., Any]
"""Receiver of notices: another Airflow notifier, or a function that takes the task's context."""


class CkptNotifier(BaseNotifier):
    """Notify users of a run that needs attention; use it as ``on_success_callback`` and ``on_failure_callback``.

    Each channel formats its message by its own templates. The templates get the notice under the name ``ckpt``: ``{{
    ckpt.subject }}``, ``{{ ckpt.text }}``, ``{{ ckpt.html }}`` and every field of :class:`~.notice.Notice`. Without a
    channel the text is written to the task's log.

    :param channels: other notifiers, or functions that take the task's context; all are called, even if one fails
    :param reasons: reasons to notify for: ``dead_letters``, ``held``, ``expired``, ``failed``; by default all
    :param task_ids: ids of tasks in the DAG run (templated), the latest first; the summary of the first one that
        returned any is used. By default the task that calls this notifier
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``BaseNotifier``
    """

    template_fields: Sequence[str] = ("task_ids",)

    def __init__(
        self,
        *channels: Channel,
        reasons: Collection[str] = frozenset(Reason),
        task_ids: Sequence[str] = (),
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.channels = channels
        self.reasons = frozenset(map(Reason, reasons))
        self.task_ids = task_ids
        self.ckpt_conn_id = ckpt_conn_id

    def notify(self, context: Context) -> None:
        """Call the channels if the run needs attention for one of the chosen reasons; else do nothing.

        Without a channel, the notice is logged as a warning.

        :param context: the task's context
        """
        notice = self.notice(context)
        if notice is None or not notice.reasons & self.reasons:
            return
        if not self.channels:
            self.log.warning("%s", notice.text)
        with ExitStack() as all_of_them:
            for channel in reversed(self.channels):
                all_of_them.callback(channel, {**context, "ckpt": notice})

    def notice(self, context: Context) -> Notice | None:
        """Return the notice about the run; None if there is no run's summary and the task has not failed.

        :param context: the task's context
        """
        summary = self._summary(context)
        failure = _describe_failure(context.get("exception"))
        if summary is None and failure is None:
            return None
        found = summary or {}
        pipeline = found.get("pipeline") or _pipeline_name(context)
        status = self._status(pipeline)
        held = tuple({"batch": item["batch"], "error": _error_text(item["error"])} for item in status.get("held", ()))
        return Notice(
            pipeline=pipeline,
            task=_describe_task(context),
            dead_lettered=found.get("records", {}).get("dead_lettered", 0),
            errors=found.get("errors", {}),
            where=_dead_letter_location(status),
            held=status.get("batches", found.get("batches_by_state", {})).get("held", 0),
            held_batches=held,
            expired=tuple(found.get("expired", ())),
            failure=failure,
        )

    def _summary(self, context: Context) -> dict[str, Any] | None:
        """Return the run's summary from XCom: that of the first task in ``task_ids`` that returned one; else None.

        :param context: the task's context
        """
        task = context["ti"]
        for task_id in self.task_ids or (task.task_id,):
            # Each instance of a mapped task, or of a mapped task group, has a run of its own.
            document = task.xcom_pull(task_ids=task_id, map_indexes=task.map_index)
            if isinstance(document, Mapping):
                found = document.get("summary", document)
                if "batches_by_state" in found:
                    return dict(found)
        return None

    def _status(self, pipeline: str) -> dict[str, Any]:
        """Return the pipeline's status from the ledger, or an empty dict if the status cannot be read.

        :param pipeline: name of the pipeline
        """
        from airflow_provider_ckpt.hooks.ckpt import CkptHook

        try:
            return CkptHook(self.ckpt_conn_id).get_status(pipeline)
        except CkptError as error:
            self.log.warning("The notice has no details from the ledger: %s", error)
            return {}


def _describe_failure(exception: object) -> str | None:
    """Return a sentence about the failure of a task; None without an exception.

    The message of an error of this package, or of ``AirflowFailException``, is used, since it contains no secret. For
    any other exception the sentence has only the type.

    :param exception: the exception with which the task failed; None if it did not fail
    """
    if exception is None:
        return None
    cause = exception.__cause__ if isinstance(exception, BaseException) else None
    known = next((error for error in (exception, cause) if isinstance(error, CkptError)), None)
    if known is not None or isinstance(exception, AirflowFailException):
        return str(known or exception)
    return f"{type(exception).__name__ if isinstance(exception, BaseException) else 'unknown'}; see the task's log"


def _pipeline_name(context: Context) -> str:
    """Return the name of the pipeline that the current task runs, or the task's id if it runs none."""
    from airflow_provider_ckpt.operators.base import CkptOperator

    task = context["task"]
    with suppress(CkptError):
        if isinstance(task, CkptOperator):
            return task.pipeline_name
    return str(task.task_id)


def _describe_task(context: Context) -> str:
    """Return the name of the current task with its DAG and DAG run: ``task load[2] of shop, run manual__1``."""
    ti = context["ti"]
    member = f"[{ti.map_index}]" if ti.map_index not in (None, -1) else ""
    return f"task {ti.task_id}{member} of {ti.dag_id}, run {ti.run_id}"


def _error_text(error: Mapping[str, Any] | None) -> str:
    """Return type and message of the error for which a batch is held, such as ``[Sink] no such column``.

    :param error: the error; None if a user held the batch (the result is then ``a user held it``)
    """
    return f"[{error['type']}] {error['message']}" if error else "a user held it"


def _dead_letter_location(status: Mapping[str, Any]) -> str | None:
    """Return the place of a pipeline's dead letters, as the newest run's declaration names it; None if it is unknown.

    For example: ``topic orders-dlq of connection k``.

    :param status: status of the pipeline from the ledger
    """
    from airflow_provider_ckpt.config.load import build
    from airflow_provider_ckpt.operators.outcomes import describe_dead_letter_location

    declaration = status.get("declaration")
    with suppress(CkptError):  # the notice is useful even without the location
        return describe_dead_letter_location(build(declaration), resolve_connection) if declaration else None
    return None
