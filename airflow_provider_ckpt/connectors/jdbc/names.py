"""Return the OpenLineage dataset of a JDBC table, named as OpenLineage's integration of the table's database does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc.dialect import split_name

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.connector_section import ConnectorSection

_OPTIONS = re.compile(r"[;?(,]|[:/&]?[\w.$-]+=")
"""Pattern of the beginning of a JDBC URL's options, which may contain secrets."""


def dataset(section: ConnectorSection, connection: Connection | None) -> tuple[str, str]:
    """Return the namespace and name of a table's dataset by OpenLineage's rules.

    :param section: section ``source``
    :param connection: the Airflow connection, whose host is the JDBC URL
    :return: such as ``postgres://db:5432`` and ``shop.public.orders``
    """
    assert connection is not None
    kind, _, address = _OPTIONS.split((connection.host or "").removeprefix("jdbc:"))[0].partition(":")
    address = address.rpartition("@")[2]  # an Oracle URL has user/password before the @
    host, _, database = address.rpartition("//")[2].partition("/")
    names = split_name(section.place)
    if kind == "postgresql":
        kind, host = "postgres", host if ":" in host else f"{host}:5432"
        names = names if len(names) > 1 else ["public", *names]
    return f"{kind}://{host}", ".".join(filter(None, [database, *names]))
