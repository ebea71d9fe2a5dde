"""Declared reaction to changes of a source's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

KEYS = ("new_column", "wider_type", "dropped_column", "renamed_column", "other_type")
"""Kinds of changes to which a policy reacts."""

_FOLLOWED = {
    "new_column": "evolve",
    "wider_type": "evolve",
    "dropped_column": "keep",
    "renamed_column": "follow",
    "other_type": "evolve",
}
"""Reaction to an accepted change; ``other_type: evolve`` cannot be declared."""


@dataclass(frozen=True, slots=True)
class SchemaPolicy:
    """Declared reaction to each kind of change; the values are those of the pipeline's document.

    :param columns: by column name, the keys that have another value for this column
    """

    new_column: str = "freeze"
    wider_type: str = "freeze"
    dropped_column: str = "freeze"
    renamed_column: str = "freeze"
    other_type: str = "freeze"
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of(self, name: str) -> SchemaPolicy:
        """Return the policy for a column of the source, by the name that it has or had."""
        own: dict[str, Any] = dict(self.columns.get(name, {}))
        return replace(self, **own) if own else self

    def value(self, key: str) -> str:
        """Return what the policy says about a kind of change."""
        return str(getattr(self, key))

    def path(self, key: str, name: str) -> str:
        """Return the key of the declaration that decides about a kind of change of a column."""
        return f"schema.columns.{name}.{key}" if key in self.columns.get(name, ()) else f"schema.{key}"

    def accepting(self) -> SchemaPolicy:
        """Return the policy that is in force for an accepted change: what is frozen or refused here is followed."""
        columns = {name: _accepting(keys) for name, keys in self.columns.items()}
        return SchemaPolicy(**_accepting({key: self.value(key) for key in KEYS}), columns=columns)


def _accepting(values: Mapping[str, str]) -> dict[str, str]:
    return {key: _FOLLOWED[key] if value in ("freeze", "dead_letter") else value for key, value in values.items()}
