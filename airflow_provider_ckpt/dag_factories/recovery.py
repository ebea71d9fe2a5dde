"""``recovery_dag``: create a DAG by which users repair a pipeline in Airflow's UI.

Users trigger the DAG with a form. Its tasks preview the action, ask for approval, carry out the action and report the
result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule

from airflow_provider_ckpt.config.outline import declares_many_tables, read_outline
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators.approval import CkptApprovalOperator
from airflow_provider_ckpt.operators.carry_out import CkptCarryOutOperator, CkptReportOperator
from airflow_provider_ckpt.operators.preview import DEFAULT_VALIDITY, CkptPreviewOperator

log = logging.getLogger(__name__)

_PREVIEW, _APPROVE, _CARRY_OUT, _REPORT = "preview", "approve", "carry_out", "report"
_ACTIONS = {
    "recover": "Recover: read records that no receipt accounts for",
    "rewind": "Rewind: read again from a position or a time",
    "replay_dead_letters": "Replay dead letters",
    "release": "Release held batches",
    "skip": "Skip batches: do not deliver them",
    "force_stop": "Force stop: fence the running one",
    "resume": "Resume after a stop",
    "resend_to_sink": "Accept a changed sink: send again what it has lost",
    "keep_sink": "Accept a changed sink: continue from the checkpoint",
    "move": "Move: the next run delivers to another sink",
    "adopt": "Adopt the receipts of a lost ledger",
    "accept_schema": "Accept the source's changed columns: the next run follows them",
}
_CARRY_OUT_TIME = timedelta(hours=1)
"""Time added to ``answer_within``: the sum is the time in which a proposed action can be approved and carried out."""
_DOC = """
Repairs a pipeline. Trigger it, choose pipeline and action, and give a reason. **preview** computes what would be
changed, and changes nothing; **approve** shows that and waits for an answer; **carry_out** does exactly what was shown,
once, or refuses if that is no longer possible; **report** reports the outcome. After *Reject* the run succeeds, and
nothing is changed.

The ledger's audit log stores who requested and who approved the action, the reason, and the state before and after.
"""


def recovery_dag(
    dag_id: str = "ckpt_recovery",
    *,
    pipelines: Sequence[str] | Path,
    approvers: Sequence[str] = (),
    answer_within: timedelta | None = timedelta(days=1),
    ckpt_conn_id: str = DEFAULT_CONNECTION,
    **kwargs: Any,
) -> DAG:
    """Create a DAG to repair a pipeline: a user triggers the DAG with an action, which a user then approves::

        preview → approve → carry_out → report

    :param dag_id: id of the DAG
    :param pipelines: names of the pipelines that can be chosen, or a folder of their YAML declarations
    :param approvers: ids of the users who may approve, as the auth manager defines them: user names with the simple
        auth manager, numbers with FAB's; by default any user who may edit the DAG's runs
    :param answer_within: time after which the action counts as rejected if no user has answered; None waits without
        limit, but an action can be approved for seven days only
    :param ckpt_conn_id: Airflow connection of the ledger
    :param kwargs: further arguments of ``DAG``; its ``params`` are added to the fields of the form
    :raises ConfigError: if there is no pipeline to choose, or ``pipelines`` is a single text
    """
    if isinstance(pipelines, str):
        raise ConfigError(
            f"DAG {dag_id}: pipelines is the text {pipelines!r}, not a list of names.",
            hint=f"Write [{pipelines!r}], or Path({pipelines!r}) for a folder.",
        )
    names = sorted(_declared_names(pipelines) if isinstance(pipelines, Path) else pipelines)
    if not names:
        raise ConfigError(
            f"DAG {dag_id}: there is no pipeline to choose.", hint="Name some, or a folder that has some."
        )
    declarations = pipelines if isinstance(pipelines, Path) else None
    shared = {"pipeline": "{{ params.pipeline }}", "ckpt_conn_id": ckpt_conn_id}
    settings: dict[str, Any] = {"schedule": None, "catchup": False, "tags": ["ckpt"], "doc_md": _DOC, **kwargs}
    with DAG(dag_id, params={**_params(names), **settings.pop("params", {})}, **settings) as dag:
        preview = CkptPreviewOperator(
            task_id=_PREVIEW,
            action="{{ params.action }}",
            reason="{{ params.reason }}",
            dry_run="{{ params.dry_run }}",
            **{name: f"{{{{ params.{name} }}}}" for name in _ACTION_PARAMS},
            valid_for=DEFAULT_VALIDITY if answer_within is None else answer_within + _CARRY_OUT_TIME,
            declarations=declarations,
            **shared,
        )
        approve = CkptApprovalOperator(
            task_id=_APPROVE,
            preview=_PREVIEW,
            ckpt_conn_id=ckpt_conn_id,
            assigned_users=[{"id": user, "name": user} for user in approvers],
            response_timeout=answer_within,
            defaults=CkptApprovalOperator.REJECT if answer_within else None,
        )
        carry_out = CkptCarryOutOperator(task_id=_CARRY_OUT, preview=_PREVIEW, declarations=declarations, **shared)
        report = CkptReportOperator(task_id=_REPORT, preview=_PREVIEW, trigger_rule=TriggerRule.NONE_FAILED, **shared)
        preview >> approve >> carry_out >> report
    return dag


_ACTION_PARAMS: Mapping[str, Param] = {
    "partition": Param(
        None,
        type=["null", "string"],
        title="Source partition",
        description="Rewind: the source partition, if there are several.",
    ),
    "to_position": Param(
        None,
        type=["null", "integer"],
        minimum=0,
        title="To position",
        description="Rewind: the first position to read again.",
    ),
    "to_time": Param(
        None,
        type=["null", "string"],
        format="date-time",
        title="To time",
        description="Rewind: the time whose checkpoint to return to.",
    ),
    "batches": Param(
        None,
        type=["null", "array"],
        items={"type": "string"},
        title="Batches",
        description="Release, skip, replay: one a line, as `airflow ckpt inspect` names them. "
        "Empty means all held batches, or all dead letters; skip needs at least one.",
    ),
    "error_types": Param(
        None,
        type=["null", "array"],
        examples=[kind.value for kind in ErrorType],
        title="Error types",
        description="Replay: dead letters of these types only.",
    ),
    "stop_at": Param(
        None, type=["null", "integer"], minimum=1, title="Stop at", description="Replay: at most this many."
    ),
    "ledger_id": Param(
        None,
        type=["null", "string"],
        maxLength=200,
        title="Ledger",
        description="Adopt: id of the lost ledger, as the error of a refused run names it.",
    ),
}


def _params(names: Iterable[str]) -> dict[str, Param]:
    """Return the fields of the form with which users trigger the DAG.

    :param names: names of the pipelines to choose from
    """
    choices = list(names)
    return {
        "pipeline": Param(choices[0], type="string", enum=choices, title="Pipeline"),
        "action": Param("recover", type="string", enum=list(_ACTIONS), values_display=_ACTIONS, title="Action"),
        "reason": Param(
            type="string",
            minLength=3,
            maxLength=1000,
            title="Reason",
            description="Reason of the action; the audit log stores it.",
        ),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Only preview; nothing is proposed for approval."
        ),
        **_ACTION_PARAMS,
    }


def _declared_names(folder: Path) -> list[str]:
    """Return the names of the pipelines that the YAML files of a folder declare.

    Two kinds of files are left out: files from which no pipeline name can be read, with a warning in the log, and files
    that declare many tables.

    :param folder: the folder
    """
    names = []
    for path in sorted(folder.glob("*.y*ml")):
        if declares_many_tables(path):  # many tables: the names of the pipelines depend on the source's tables
            continue
        name = read_outline(path).name
        if name is None:
            log.warning(
                "%s declares no pipeline that could be chosen", str(path).encode("utf-8", "backslashreplace").decode()
            )
        else:
            names.append(name)
    return names
