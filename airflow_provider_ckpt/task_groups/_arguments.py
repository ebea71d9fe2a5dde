"""Divide the arguments of a task group into those of the group, of all its tasks, of its first and of its last task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from airflow.sdk import BaseOperator, TaskGroup

_GROUP_PARAMETERS = frozenset(signature(TaskGroup.__init__).parameters)
_RESERVED_TASK_PARAMETERS = frozenset(
    {"self", "kwargs", "task_id", "dag", "task_group", "task_display_name", "do_xcom_push", "multiple_outputs"}
)
_TASK_PARAMETERS = frozenset(signature(BaseOperator.__init__).parameters) - _RESERVED_TASK_PARAMETERS
_FIRST_TASK_PARAMETERS = frozenset({"trigger_rule", "inlets"})
_LAST_TASK_PARAMETERS = frozenset({"outlets"})


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments that a user gave a task group, divided by their recipients: the group, or tasks in the group.

    :param of_group: arguments of ``TaskGroup``
    :param of_tasks: arguments of every task
    :param of_first: arguments of the first task only
    :param of_last: arguments of the last task only
    """

    of_group: Mapping[str, Any]
    of_tasks: Mapping[str, Any]
    of_first: Mapping[str, Any]
    of_last: Mapping[str, Any]


def split_arguments(class_name: str, group_id: str, given: Mapping[str, Any]) -> Arguments:
    """Divide the arguments that a user gave a task group among the group, all its tasks, its first and its last task.

    :param class_name: name of the group's class, for the error message
    :param group_id: id of the group, for the error message
    :param given: the arguments
    :raises TypeError: if an argument is neither one of ``TaskGroup`` nor of ``BaseOperator``
    """
    if unknown := sorted(given.keys() - _GROUP_PARAMETERS - _TASK_PARAMETERS):
        raise TypeError(f"{class_name} {group_id!r}: unknown arguments: {', '.join(unknown)}")
    of_group = _GROUP_PARAMETERS & given.keys()
    first, last = ((names & given.keys()) - of_group for names in (_FIRST_TASK_PARAMETERS, _LAST_TASK_PARAMETERS))
    of_tasks = given.keys() - of_group - first - last
    chosen = ({name: given[name] for name in sorted(names)} for names in (of_group, of_tasks, first, last))
    return Arguments(*chosen)


def without_none(**arguments: Any) -> dict[str, Any]:
    """Return the keyword arguments whose value is not None; Airflow then takes the others from ``default_args``.

    :param arguments: the keyword arguments
    """
    return {name: value for name, value in arguments.items() if value is not None}
