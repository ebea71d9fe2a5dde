"""``airflow ckpt db roles ledger``, ``sink``, ``source``: print SQL that creates PostgreSQL roles with few privileges.

The owner of the database runs the SQL; the commands themselves connect to no database. Each function takes the names of
schema, roles and tables from the command's arguments, and returns a dict with ``schema``, ``roles`` and the script as
``sql``.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.runner import command


def _script(result: dict[str, Any], out: TextIO) -> None:
    """Write only the SQL script of a result, its key ``sql``, so that the output can be piped into psql."""
    out.write(result["sql"])


@command(_script)
def ledger(args: Namespace) -> dict[str, Any]:
    """Return SQL that creates a PostgreSQL ledger's schema and three roles: for migrations, runs, and reading."""
    from airflow_provider_ckpt.ledger.store.roles import LedgerRoles

    roles = LedgerRoles(args.schema, args.owner, args.runtime, args.reader)
    return {"schema": args.schema, "roles": [args.owner, args.runtime, args.reader], "sql": roles.sql}


@command(_script)
def sink(args: Namespace) -> dict[str, Any]:
    """Return SQL that lets a writer role write to targets in a schema, and that creates the bookkeeping tables in it.

    The SQL also lets a reader role read receipts and dead letters.
    """
    from airflow_provider_ckpt.connectors.postgres.roles import SinkRoles

    roles = SinkRoles(
        args.schema,
        args.writer,
        args.reader,
        args.table or (),
        upsert=args.upsert,
        pipelines=args.pipeline or (),
        replace=args.replace,
        create=args.create,
    )
    return {"schema": args.schema, "roles": [args.writer, args.reader], "sql": roles.sql}


@command(_script)
def source(args: Namespace) -> dict[str, Any]:
    """Return SQL that lets a role read source tables, and detect a failover that has lost transactions.

    For the detection, the SQL creates a function that returns the WAL positions at which the server's timelines
    branched.
    """
    from airflow_provider_ckpt.connectors.postgres.source_roles import SourceRoles

    roles = SourceRoles(args.schema, args.reader, args.table or ())
    return {"schema": args.schema, "roles": [args.reader], "sql": roles.sql}
