"""``airflow ckpt db migrate``, ``check`` and ``downgrade``: create, check and downgrade the ledger's tables."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TextIO

from airflow_provider_ckpt.cli.identity import confirm
from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.cli.runner import FailedError, command
from airflow_provider_ckpt.core.errors import ConfigError


def _table(result: dict[str, Any], out: TextIO) -> None:
    write_table(result.items(), out)


@command(_table)
def migrate(args: Namespace) -> dict[str, Any]:
    """Create the ledger, or upgrade it to the schema revision that this version of the package requires.

    :return: the ledger's location, and its revision before and after the migration, JSON-ready
    """
    from airflow_provider_ckpt.ledger.store import migrate as migrate_module
    from airflow_provider_ckpt.ledger_location import locate_ledger

    location = locate_ledger(args.ledger)
    before = migrate_module.current_revision(location.url)
    migrate_module.upgrade(location.url, create=True)
    return {
        "ledger": location.where,
        "from": location.origin,
        "before": before,
        "revision": migrate_module.current_revision(location.url),
    }


@command(_table)
def check(args: Namespace) -> dict[str, Any]:
    """Return the ledger's location, its schema revision and the required revision, JSON-ready.

    :raises FailedError: if the ledger does not have the required revision; the command's exit status is then 1
    """
    from airflow_provider_ckpt.ledger.store import migrate as migrate_module
    from airflow_provider_ckpt.ledger_location import locate_ledger

    location = locate_ledger(args.ledger)
    current, head = migrate_module.current_revision(location.url), migrate_module.head()
    result = {"ledger": location.where, "from": location.origin, "revision": current, "head": head}
    if current != head:
        raise FailedError(
            f"the ledger is at revision {current or 'none'}, not {head}. Run: airflow ckpt db migrate", result
        )
    return result


@command(_table)
def downgrade(args: Namespace) -> dict[str, Any]:
    """Downgrade the ledger to the older revision ``args.revision``, after a confirmation.

    :return: the ledger's location and the revisions that were undone, JSON-ready

    :raises ConfigError: if a run holds a lease, the revision is not an older one, or the user does not confirm
    """
    from airflow_provider_ckpt.ledger.store import migrate as migrate_module
    from airflow_provider_ckpt.ledger_location import locate_ledger

    location = locate_ledger(args.ledger)
    before = migrate_module.current_revision(location.url)
    steps = _revisions_to_undo(before, args.revision)
    _refuse_while_running(location.url, before)
    if steps and not args.dry_run:
        loses = "everything" if args.revision == "base" else "the data that only newer revisions can store"
        confirm(args, f"Downgrade the ledger in {location.where} to {args.revision}? It loses {loses}.")
        migrate_module.downgrade(location.url, args.revision)
    return {
        "ledger": location.where,
        "from": location.origin,
        "before": before,
        "revision": migrate_module.current_revision(location.url),
        "undone": steps,
        "dry_run": args.dry_run,
    }


def _revisions_to_undo(current: str | None, wanted: str) -> list[str]:
    """Return the schema revisions that a downgrade undoes, newest first.

    :param current: the ledger's revision; None if it has no tables
    :param wanted: the revision to downgrade to; ``base`` undoes all, so that no table remains
    :raises ConfigError: if the wanted revision is neither the current one nor an older one
    """
    from alembic.script import ScriptDirectory

    from airflow_provider_ckpt.ledger.store import migrate as migrate_module

    scripts = ScriptDirectory.from_config(migrate_module.alembic_config())
    known = [] if current is None else [script.revision for script in scripts.iterate_revisions(current, "base")]
    if current is None or wanted not in [*known, "base"]:
        raise ConfigError(
            f"the ledger is at revision {current or 'none'} and cannot be downgraded to {wanted!r}.",
            hint=f"Possible revisions: {', '.join([*known[1:], 'base']) if known else 'none'}.",
        )
    return known if wanted == "base" else known[: known.index(wanted)]


def _refuse_while_running(url: str, revision: str | None) -> None:
    """Raise an error if a run holds a lease, because a downgrade drops tables that the run needs.

    If the ledger does not have the revision that this version requires, nothing is checked, since no run of this
    version can then be active.

    :param url: the ledger's URL
    :param revision: the ledger's revision; None if there is no ledger
    :raises ConfigError: if a run holds a lease; the error names its pipeline
    """
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.store import migrate as migrate_module

    if revision != migrate_module.head():
        return
    with Ledger.open(url) as ledger:
        leases = {name: ledger.status(name)["lease"] for name in ledger.pipelines()}
    running = sorted(name for name, lease in leases.items() if lease["held"])
    if running:
        raise ConfigError(
            f"a run holds the lease of {', '.join(running)}.",
            hint="Wait for it to end, or see: airflow ckpt lease PIPELINE --break",
        )
