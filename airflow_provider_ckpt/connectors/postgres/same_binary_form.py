"""Compare column types to decide whether binary COPY data of a source column can be written to a target column."""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.connectors.postgres.table import Column

_TYPES = frozenset(
    {
        "bool", "bpchar", "bytea", "cidr", "date", "float4", "float8", "inet", "int2", "int4", "int8", "interval",
        "json", "jsonb", "macaddr", "numeric", "text", "time", "timestamp", "timestamptz", "timetz", "uuid", "varchar",
    }
)  # fmt: skip
"""Types, by their name in pg_type, whose binary form depends neither on the database nor on the server's version."""


def is_same_type(ours: Column, theirs: Column) -> bool:
    """Return whether a source column's values have the same binary form in a target column, without any rounding.

    :param ours: the source column
    :param theirs: the target column
    """
    is_base_type = ours.type_name == ours.base_type and theirs.type_name == theirs.base_type  # else a domain
    return (
        is_base_type
        and ours.base_type == theirs.base_type in _TYPES
        and ours.receive == theirs.receive  # else one is a user's type of the same name
        and theirs.modifier in (-1, ours.modifier)
        and not theirs.generated
    )


def are_utf8(*sessions: Any) -> bool:
    """Return whether the databases of all given sessions are encoded as UTF-8, so that texts can be copied as bytes."""
    return all(session.get_parameter_status("server_encoding") == "UTF8" for session in sessions)
