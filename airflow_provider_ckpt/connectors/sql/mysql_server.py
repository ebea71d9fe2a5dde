"""Refuse a MySQL or MariaDB server on which a fence does not hold, and warn if its commits are not durable.

Also find out whether the server shows all transactions that write to its tables, as a source needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlalchemy as sa

_SETTINGS = """
SELECT variable_name, variable_value FROM {place} WHERE variable_name IN (
    'wsrep_on', 'read_only', 'super_read_only', 'innodb_flush_log_at_trx_commit', 'sync_binlog', 'log_bin',
    'binlog_format', 'innodb_doublewrite', 'innodb_read_only', 'group_replication_single_primary_mode', 'server_uuid',
    'server_uid')
"""
_CLUSTER = (
    "the server belongs to a cluster with several primaries (Galera or group replication), in which a row lock holds "
    "on one node only, so that a run that was taken over could still commit"
)
_STATEMENTS = "the server logs statements, which InnoDB refuses in READ COMMITTED"


def server_settings(connection: sa.Connection) -> dict[str, str]:
    """Return the server settings that decide whether the server is suitable for a target, by name in lower case.

    :param connection: an open connection
    """
    version = str(connection.exec_driver_sql("SELECT VERSION()").scalar())
    place = "information_schema.global_variables" if "MariaDB" in version else "performance_schema.global_variables"
    rows = connection.exec_driver_sql(_SETTINGS.format(place=place)).all()
    return {str(name).lower(): str(value) for name, value in rows}


def server_problems(settings: Mapping[str, str]) -> tuple[Sequence[tuple[str, str]], Sequence[str]]:
    """Return the reasons why a server is unsuitable for a target, each with its remedy, and warnings about settings.

    The warnings name settings with which a crash of the server may lose commits.

    :param settings: the server's settings by name
    """
    problems = []
    if _has_several_primaries(settings):
        problems.append((_CLUSTER, "Name a server with a single primary."))
    if is_on(settings.get("read_only")) or is_on(settings.get("super_read_only")):
        problems.append(("the server is read-only", "Name a connection to the primary."))
    if is_on(settings.get("log_bin")) and settings.get("binlog_format", "").upper() == "STATEMENT":
        problems.append((_STATEMENTS, "Set binlog_format = MIXED or ROW."))
    wanted = {"innodb_flush_log_at_trx_commit": ("1",), "innodb_doublewrite": ("ON", "1", "DETECT_AND_RECOVER")}
    if is_on(settings.get("log_bin")):
        wanted["sync_binlog"] = ("1",)
    warnings = [
        f"runs with {name} = {settings[name]}: when it crashes, rows may be lost. Set {name} = {good[0]}."
        for name, good in wanted.items()
        if name in settings and settings[name].upper() not in good
    ]
    return problems, warnings


def transactions_elsewhere(connection: sa.Connection, settings: Mapping[str, str]) -> str | None:
    """Return a clause that says why transactions of other servers write to this server's tables; None if none do.

    A replica is recognised by its threads, which only MariaDB shows to every user, or by being read-only.

    :param connection: an open connection
    :param settings: the server's settings by name
    """
    if _has_several_primaries(settings):
        return "belongs to a cluster with several primaries (Galera or group replication)"
    threads = connection.exec_driver_sql("SHOW GLOBAL STATUS LIKE 'Slaves_running'").first()
    if threads is not None and int(threads[1]):
        return "is a replica"
    read_only = [name for name in ("read_only", "super_read_only", "innodb_read_only") if is_on(settings.get(name))]
    return f"is read-only ({read_only[0]}), as replicas are" if read_only else None


def _has_several_primaries(settings: Mapping[str, str]) -> bool:
    return is_on(settings.get("wsrep_on")) or settings.get("group_replication_single_primary_mode", "").upper() == "OFF"


def is_on(value: Any) -> bool:
    """Return whether the value of a setting (of the server or of a connection's extra) means that the setting is on."""
    return str(value).upper() in ("1", "ON", "YES", "TRUE")
