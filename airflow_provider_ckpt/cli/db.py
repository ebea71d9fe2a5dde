"""``airflow ckpt db migrate`` and ``airflow ckpt db check``: the ledger's tables, wherever the ledger is."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.command import FailedError, command
from airflow_provider_ckpt.cli.output import write_table


def _table(result: dict[str, Any], out: TextIO) -> None:
    write_table(result.items(), out)


@command(_table)
def migrate(args: Namespace) -> dict[str, Any]:
    """Create the ledger, or bring it to this version's revision."""
    from airflow_provider_ckpt.ledger import migrate as migrations
    from airflow_provider_ckpt.ledger_location import locate_ledger

    location = locate_ledger(args.ledger)
    before = migrations.current(location.url)
    migrations.upgrade(location.url, create=True)
    return {
        "ledger": location.where,
        "from": location.origin,
        "before": before,
        "revision": migrations.current(location.url),
    }


@command(_table)
def check(args: Namespace) -> dict[str, Any]:
    """Say at which revision the ledger is; exit status 1 unless it is this version's."""
    from airflow_provider_ckpt.ledger import migrate as migrations
    from airflow_provider_ckpt.ledger_location import locate_ledger

    location = locate_ledger(args.ledger)
    current, head = migrations.current(location.url), migrations.head()
    result = {"ledger": location.where, "from": location.origin, "revision": current, "head": head}
    if current != head:
        raise FailedError(
            f"the ledger is at revision {current or 'none'}, not {head}. Run: airflow ckpt db migrate", result
        )
    return result
