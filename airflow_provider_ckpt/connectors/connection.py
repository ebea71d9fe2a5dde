"""Connection data of a source or sink, in a class that drivers and lanes can use without importing Airflow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials of a source or sink: the fields of an Airflow connection that drivers need.

    Their names and meanings are those of :class:`airflow.models.Connection`, except that ``id`` and ``type`` are its
    ``conn_id`` and ``conn_type``, and ``extra`` is decoded from JSON.
    """

    id: str
    type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict of all fields, including the password.

        Since the dict contains the password, write it only to files of mode 0600, and pass it to lanes only through
        Spark itself, never in a command line.
        """
        return {name: getattr(self, name) for name in self.__slots__} | {"extra": dict(self.extra)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Connection:
        """Restore a connection from the output of :meth:`to_json`."""
        return cls(**data)
