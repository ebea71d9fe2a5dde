"""Define the policy of schema changes: the declared reaction to each kind of change of a source's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

KEYS = ("new_column", "wider_type", "dropped_column", "renamed_column", "other_type")
"""Keys of the section ``schema``: the kinds of changes to which a policy reacts."""

_FOLLOWED = {
    "new_column": "evolve",
    "wider_type": "evolve",
    "dropped_column": "keep",
    "renamed_column": "follow",
    "other_type": "evolve",
}
"""Reaction to a change that a user has accepted, by kind of change; ``other_type: evolve`` cannot be declared."""


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """Reaction to each kind of change of a source's columns, as the section ``schema`` of a pipeline declares it.

    :param new_column: ``evolve``, ``freeze``, ``discard`` or ``dead_letter``
    :param wider_type: for a type that has all values of the old type: ``evolve`` or ``freeze``
    :param dropped_column: ``keep`` or ``freeze``
    :param renamed_column: ``follow``, ``as_new`` or ``freeze``
    :param other_type: for a type that lacks values of the old type: ``dead_letter`` or ``freeze``
    :param columns: by column name, the keys that have another value for this column
    """

    new_column: str = "freeze"
    wider_type: str = "freeze"
    dropped_column: str = "freeze"
    renamed_column: str = "freeze"
    other_type: str = "freeze"
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, name: str) -> SchemaPolicy:
        """Return the policy for one column, with the column's own values in place of the general ones.

        :param name: the column's name in the source, now or before it was renamed
        """
        own: dict[str, Any] = dict(self.columns.get(name, {}))
        return replace(self, **own) if own else self

    def value(self, key: str) -> str:
        """Return the reaction to a kind of change, such as ``freeze``; ``key`` is one of :data:`KEYS`."""
        return str(getattr(self, key))

    def path(self, key: str, name: str) -> str:
        """Return the path of the declaration's key that decides about a change, such as ``schema.new_column``.

        :param key: the kind of change, one of :data:`KEYS`
        :param name: the column's name; if the column has this key of its own, the path is ``schema.columns.NAME.KEY``
        """
        return f"schema.columns.{name}.{key}" if key in self.columns.get(name, ()) else f"schema.{key}"

    def accepting(self) -> SchemaPolicy:
        """Return the policy for changes that a user has accepted.

        Each ``freeze`` and ``dead_letter`` is replaced by the reaction that applies the change.
        """
        columns = {name: _accepting(keys) for name, keys in self.columns.items()}
        return SchemaPolicy(**_accepting({key: self.value(key) for key in KEYS}), columns=columns)


def _accepting(values: Mapping[str, str]) -> dict[str, str]:
    return {key: _FOLLOWED[key] if value in ("freeze", "dead_letter") else value for key, value in values.items()}
