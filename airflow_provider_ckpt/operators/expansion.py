"""Make the declarations over which an operator or a task group expands part of the DAG's version, by their digest.

Airflow creates each mapped task only when it runs, so the DAG that Airflow stores would contain just the paths of the
declarations, and a changed file would not make a new version. The digest covers the declarations that are known when
the DAG file is parsed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, cast

from airflow.sdk import XComArg, get_parsing_context
from airflow.sdk.bases.decorator import _TaskDecorator
from airflow.sdk.definitions._internal.expandinput import MappedArgument
from airflow.sdk.definitions.mappedoperator import MappedOperator, OperatorPartial

from airflow_provider_ckpt.operators import _declaration

_PIPELINE = "pipeline"


class CkptPartial(OperatorPartial):
    """Operator class with some of its arguments, as :meth:`CkptOperator.partial` returns it.

    ``expand`` and ``expand_kwargs`` store a digest of all declarations with the mapped operator.
    """

    @classmethod
    def of(cls, partial: OperatorPartial) -> CkptPartial:
        """Convert Airflow's ``OperatorPartial`` to an object of this class.

        :param partial: object that Airflow's ``partial`` returned; do not expand it afterwards, but the result
        """
        partial._expand_called = True  # or Airflow would warn that it is never expanded
        return cls(operator_class=partial.operator_class, kwargs=partial.kwargs, params=partial.params)

    def expand(self, **mapped_kwargs: Any) -> MappedOperator:
        """Create a mapped operator as Airflow's ``expand`` does, and store the digest of its declarations with it.

        :param mapped_kwargs: by argument name, the values over which to expand
        """
        return _with_digest(super().expand(**mapped_kwargs))

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
        """Create a mapped operator as Airflow's ``expand_kwargs`` does; store the digest of its declarations with it.

        :param kwargs: list of the arguments of each mapped task, or another task's result
        :param strict: whether an argument that ``partial`` has set may not be given again
        """
        return _with_digest(super().expand_kwargs(kwargs, strict=strict))


class CkptTaskDecorator(_TaskDecorator[..., Any, Any]):
    """Function decorated by ``@task.ckpt_batch``, which a DAG calls or expands.

    ``expand`` and ``expand_kwargs`` store a digest of all declarations with the mapped task.
    """

    @classmethod
    def of(cls, decorator: Any) -> CkptTaskDecorator:
        """Convert Airflow's task decorator to an object of this class.

        :param decorator: object that ``task_decorator_factory`` returned for a function
        """
        return cls(
            function=decorator.function,
            operator_class=decorator.operator_class,
            multiple_outputs=decorator.multiple_outputs,
            kwargs=decorator.kwargs,
        )

    def expand(self, **map_kwargs: Any) -> XComArg:
        """Create a mapped task as Airflow's ``expand`` does, and store the digest of its declarations with it.

        :param map_kwargs: by argument name, the values over which to expand
        """
        return _result_with_digest(super().expand(**map_kwargs))

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> XComArg:
        """Create a mapped task as Airflow's ``expand_kwargs`` does, and store the digest of its declarations with it.

        :param kwargs: list of the arguments of each mapped task, or another task's result
        :param strict: whether an argument that ``partial`` has set may not be given again
        """
        return _result_with_digest(super().expand_kwargs(kwargs, strict=strict))


def combined_digest(argument: MappedArgument, folder: str, user: str) -> dict[str, Any] | None:
    """Return the combined digest of all declarations over which a task group expands.

    :param argument: argument of the task group over which the group expands; it gives each instance its declaration
    :param folder: folder from which relative paths start
    :param user: description of the task that uses the declarations, for error messages
    :return: ``{"digest": …, "document": None}``; None if no declaration can be read yet, or if the DAG file is parsed
        to run a task
    """
    return _digest_of_all(_values(argument._input.value, argument._key), folder, user)


def _with_digest(operator: MappedOperator) -> MappedOperator:
    """Have Airflow store the digest of all declarations with a mapped operator, and return the operator.

    Airflow calls the operator's ``prepare_template`` after it has parsed the DAG file; that method is replaced by one
    that sets the digest.

    :param operator: the mapped operator
    """
    operator.prepare_template = partial(_set_declaration, operator)  # type: ignore[method-assign]
    return operator


def _result_with_digest(result: XComArg) -> XComArg:
    """Store the digest of all declarations with a mapped task's operator, and return the task's result.

    :param result: the mapped task's result, which refers to its operator
    """
    _with_digest(cast("MappedOperator", result.operator))  # type: ignore[attr-defined]
    return result


def _set_declaration(operator: MappedOperator) -> None:
    """Set the field ``declaration`` of a mapped operator to the digest of all declarations over which it expands.

    :param operator: the mapped operator
    """
    given = operator.partial_kwargs
    found = [given[_PIPELINE]] if _PIPELINE in given else _values(operator.expand_input.value, _PIPELINE)
    folder = operator.dag.folder if operator.dag else ""
    operator.declaration = _digest_of_all(found, folder, f"task {operator.task_id}")  # type: ignore[attr-defined]


def _values(expanded: object, key: str) -> Iterable[object]:
    """Return the values of one argument over which a task or group expands.

    The result is empty if the values become known only when other tasks have run.

    :param expanded: argument of Airflow's ``expand`` (lists by name) or ``expand_kwargs`` (list of dicts)
    :param key: name of the argument
    """
    if isinstance(expanded, Mapping):
        values = expanded.get(key)
        return values if isinstance(values, list | tuple) else ()
    if isinstance(expanded, list | tuple):
        return [item[key] for item in expanded if isinstance(item, Mapping) and key in item]
    return ()


def _digest_of_all(found: Iterable[object], folder: str, user: str) -> dict[str, Any] | None:
    """Return the combined digest of several declarations, as a value for the field ``declaration`` of a task.

    The result is ``{"digest": …, "document": None}``, or None if none of the declarations can be read yet, or if the
    DAG file is parsed to run a task.

    :param found: the declarations
    :param folder: folder from which relative paths start
    :param user: description of the task that uses the declarations, for error messages
    """
    if get_parsing_context().dag_id is not None:  # a task is about to run, so the DAG is not stored
        return None
    digests = [_declaration.digest(item, folder, user) for item in found]
    if not any(digests):
        return None
    return {"digest": hashlib.sha256(json.dumps(digests).encode()).hexdigest(), "document": None}
