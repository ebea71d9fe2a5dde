"""Brings a ledger to a revision with Alembic, and checks that one is where this code needs it.

Alembic's version table is our own, so the ledger may share a database with anything. Only migration makes a file.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import LedgerUnavailableError
from airflow_provider_ckpt.ledger.store import database as engines
from airflow_provider_ckpt.ledger.store.tables import HEAD, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parents[1] / "migrations"
"""Alembic's script location."""


def head() -> str:
    """The revision that this code works with."""
    return HEAD


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, on a connection if one is given; else ``sqlalchemy.url`` must be set on it."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    if connection is not None:
        made.attributes["connection"] = connection
    return made


def upgrade(url: str, *, create: bool = False) -> None:
    """Bring a ledger to :func:`head`.

    :param create: whether a missing SQLite file may be made
    :raises LedgerUnavailableError: if the database cannot be reached, or the file is missing and not to be made
    """
    from alembic import command

    parsed = engines.parse(url)
    if create:
        make_file(parsed)
    require_file(parsed)
    _migrate(parsed, lambda alembic: command.upgrade(alembic, HEAD))


def downgrade(url: str, revision: str) -> None:
    """Take a ledger back to an older revision; ``base`` drops its tables."""
    from alembic import command

    parsed = engines.parse(url)
    require_file(parsed)
    _migrate(parsed, lambda alembic: command.downgrade(alembic, revision))


def current(url: str) -> str | None:
    """The revision that a ledger is at, or None where there is no ledger."""
    parsed = engines.parse(url)
    if not _file_exists(parsed):
        return None
    engine = engines.create(parsed)
    try:
        with engines.reading(engine, engines.describe(parsed)) as connection:
            return revision(connection)
    finally:
        engine.dispose()


def revision(connection: Connection) -> str | None:
    """The revision that a connection's ledger is at, or None."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))).scalar()


def require_head(connection: Connection, place: str) -> None:
    """Make sure that a ledger is where this code needs it.

    :raises LedgerUnavailableError: if it is not; names the command that helps
    """
    found = revision(connection)
    if found is None:
        raise LedgerUnavailableError(f"there is no ledger in {place} yet.", hint=engines.MIGRATE)
    if found != HEAD:
        raise LedgerUnavailableError(
            f"the ledger in {place} is at revision {found}, and this version works with {HEAD}.", hint=engines.MIGRATE
        )


def require_file(url: URL) -> None:
    """Make sure that a SQLite ledger's file exists; says nothing of a server.

    :raises LedgerUnavailableError: if it does not
    """
    if not _file_exists(url):
        raise LedgerUnavailableError(
            f"there is no ledger: {engines.describe(url)} does not exist.", hint=engines.MIGRATE
        )


def _file_exists(url: URL) -> bool:
    return url.get_backend_name() != "sqlite" or Path(str(url.database)).exists()


def make_file(url: URL) -> None:
    """Make a SQLite ledger's file, empty, if it is not there; SQLite gives its other files the same mode.

    :raises LedgerUnavailableError: if it cannot be made
    """
    if url.get_backend_name() != "sqlite":
        return
    path = Path(str(url.database)).absolute()
    try:
        private_files.make_directories(path.parent)
        if not path.exists():
            with suppress(FileExistsError):  # made meanwhile, or a link: then SQLite says whether it leads anywhere
                private_files.create(path).close()
    except OSError as error:
        raise LedgerUnavailableError(
            f"{engines.describe(url)} cannot be made: {error.strerror}.",
            hint="Choose another place for the ledger.",
        ) from error


def _migrate(url: URL, action: Callable[[Config], None]) -> None:
    engine = engines.create(url)
    try:
        with engines.writing(engine, engines.describe(url)) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(VERSION_TABLE))))
            action(config(connection))
    finally:
        engine.dispose()
