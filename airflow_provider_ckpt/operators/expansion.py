"""Declarations that an operator or a group expands over: all of them together are part of the DAG's version.

Airflow makes an expanded task anew when it runs, so what it stores of the DAG shows a declaration's path alone. Here
the digest of all declarations is stored with it, as far as they are known when the DAG file is parsed.
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
    """An operator class with some of its arguments, as ``partial`` returns it."""

    @classmethod
    def of(cls, partial: OperatorPartial) -> CkptPartial:
        """The same as Airflow has made it.

        :param partial: it, and it is not to be expanded itself any more
        """
        partial._expand_called = True  # or Airflow would warn that it is never expanded
        return cls(operator_class=partial.operator_class, kwargs=partial.kwargs, params=partial.params)

    def expand(self, **mapped_kwargs: Any) -> MappedOperator:
        """Make a mapped operator; see Airflow's documentation of it."""
        return _covered(super().expand(**mapped_kwargs))

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> MappedOperator:
        """Make a mapped operator; see Airflow's documentation of it."""
        return _covered(super().expand_kwargs(kwargs, strict=strict))


class CkptTaskDecorator(_TaskDecorator[..., Any, Any]):
    """A decorated function, which is called or expanded."""

    @classmethod
    def of(cls, decorator: Any) -> CkptTaskDecorator:
        """The same as Airflow has made it.

        :param decorator: what ``task_decorator_factory`` returns for a function
        """
        return cls(
            function=decorator.function,
            operator_class=decorator.operator_class,
            multiple_outputs=decorator.multiple_outputs,
            kwargs=decorator.kwargs,
        )

    def expand(self, **map_kwargs: Any) -> XComArg:
        """Make a mapped operator; see Airflow's documentation of it."""
        return _covered_result(super().expand(**map_kwargs))

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> XComArg:
        """Make a mapped operator; see Airflow's documentation of it."""
        return _covered_result(super().expand_kwargs(kwargs, strict=strict))


def shown(argument: MappedArgument, folder: str, user: str) -> dict[str, Any] | None:
    """The digest of all declarations that a group expands over, or None if there is none to read yet.

    :param argument: the group's, which stands for its members' declarations
    :param folder: the folder from which relative paths start
    :param user: the name of the declaration's user in errors
    """
    return _together(_values(argument._input.value, argument._key), folder, user)


def _covered(operator: MappedOperator) -> MappedOperator:
    """Have Airflow store the digest: it prepares the templates of each task of a DAG file that it has parsed."""
    operator.prepare_template = partial(_declare, operator)  # type: ignore[method-assign]
    return operator


def _covered_result(result: XComArg) -> XComArg:
    _covered(cast("MappedOperator", result.operator))  # type: ignore[attr-defined]
    return result


def _declare(operator: MappedOperator) -> None:
    given = operator.partial_kwargs
    found = [given[_PIPELINE]] if _PIPELINE in given else _values(operator.expand_input.value, _PIPELINE)
    folder = operator.dag.folder if operator.dag else ""
    operator.declaration = _together(found, folder, f"task {operator.task_id}")  # type: ignore[attr-defined]


def _values(expanded: object, key: str) -> Iterable[object]:
    """The values of one argument that are known when the DAG file is parsed.

    :param expanded: lists by argument, or a list of arguments, as they were given to Airflow
    :param key: the argument
    """
    if isinstance(expanded, Mapping):
        values = expanded.get(key)
        return values if isinstance(values, list | tuple) else ()
    if isinstance(expanded, list | tuple):
        return [item[key] for item in expanded if isinstance(item, Mapping) and key in item]
    return ()


def _together(found: Iterable[object], folder: str, user: str) -> dict[str, Any] | None:
    if get_parsing_context().dag_id is not None:  # a task is about to run, and nothing is stored
        return None
    digests = [_declaration.digest(item, folder, user) for item in found]
    if not any(digests):
        return None
    return {"digest": hashlib.sha256(json.dumps(digests).encode()).hexdigest(), "document": None}
