"""Migrate a ledger to a schema revision with Alembic, and check that a ledger is at the required revision.

Alembic's version table has a name of its own, so that the ledger may share a database with other users of Alembic. Only
a migration creates a SQLite file.
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
from airflow_provider_ckpt.ledger.store import database
from airflow_provider_ckpt.ledger.store.tables import HEAD, VERSION_TABLE

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parents[1] / "migrations"
"""Directory of the migrations, Alembic's ``script_location``."""


def head() -> str:
    """Return the schema revision of the ledger that this version of the package requires."""
    return HEAD


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration for the ledger's migrations.

    :param connection: connection to migrate on; if None, the caller must set ``sqlalchemy.url``
    """
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    if connection is not None:
        config.attributes["connection"] = connection
    return config


def upgrade(url: str, *, create: bool = False) -> None:
    """Upgrade a ledger's schema to the revision that this version of the package requires, :func:`head`.

    :param url: the ledger's URL
    :param create: whether to create a missing SQLite file
    :raises LedgerUnavailableError: if the database cannot be reached, or its file is missing and ``create`` is False
    """
    from alembic import command

    parsed = database.parse_url(url)
    if create:
        create_file(parsed)
    require_file(parsed)
    _migrate(parsed, lambda alembic: command.upgrade(alembic, HEAD))


def downgrade(url: str, revision: str) -> None:
    """Downgrade a ledger's schema to an older revision.

    :param url: the ledger's URL
    :param revision: the revision; ``base`` drops all tables of the ledger
    :raises LedgerUnavailableError: if the database cannot be reached, or its file is missing
    :raises LedgerStateError: if the ledger contains data that the older version would treat wrongly
    """
    from alembic import command

    parsed = database.parse_url(url)
    require_file(parsed)
    _migrate(parsed, lambda alembic: command.downgrade(alembic, revision))


def current_revision(url: str) -> str | None:
    """Return the schema revision of the ledger at a database URL; None if there is no ledger."""
    parsed = database.parse_url(url)
    if not _file_exists(parsed):
        return None
    engine = database.create_engine(parsed)
    try:
        with database.open_snapshot(engine, database.describe(parsed)) as connection:
            return revision(connection)
    finally:
        engine.dispose()


def revision(connection: Connection) -> str | None:
    """Return the schema revision of the ledger in a connection's database; None if there is no ledger."""
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.select(sa.column("version_num")).select_from(sa.table(VERSION_TABLE))).scalar()


def require_head(connection: Connection, description: str) -> None:
    """Raise an error unless a ledger exists and is at the schema revision that this version of the package requires.

    :param connection: connection to the ledger's database
    :param description: location of the ledger, for the error message
    :raises LedgerUnavailableError: if there is no ledger, or it is at another revision; the hint names the command to
        run
    """
    found = revision(connection)
    if found is None:
        raise LedgerUnavailableError(f"there is no ledger in {description} yet.", hint=database.MIGRATE)
    if found != HEAD:
        raise LedgerUnavailableError(
            f"the ledger in {description} is at revision {found}, and this version works with {HEAD}.",
            hint=database.MIGRATE,
        )


def require_file(url: URL) -> None:
    """Raise an error if the file of a SQLite ledger does not exist; do nothing for a PostgreSQL ledger.

    :raises LedgerUnavailableError: if the file does not exist
    """
    if not _file_exists(url):
        raise LedgerUnavailableError(
            f"there is no ledger: {database.describe(url)} does not exist.", hint=database.MIGRATE
        )


def _file_exists(url: URL) -> bool:
    return url.get_backend_name() != "sqlite" or Path(str(url.database)).exists()


def create_file(url: URL) -> None:
    """Create an empty file for a SQLite ledger, readable by the current user only, if it does not exist.

    SQLite gives the files that it creates beside it the same mode. Nothing is done for PostgreSQL.

    :raises LedgerUnavailableError: if the file cannot be created
    """
    if url.get_backend_name() != "sqlite":
        return
    path = Path(str(url.database)).absolute()
    try:
        private_files.make_directories(path.parent)
        if not path.exists():
            with suppress(FileExistsError):  # created meanwhile, or a broken link, which SQLite reports
                private_files.create(path).close()
    except OSError as error:
        raise LedgerUnavailableError(
            f"{database.describe(url)} cannot be created: {error.strerror}.",
            hint="Choose another location for the ledger.",
        ) from error


def _migrate(url: URL, action: Callable[[Config], None]) -> None:
    engine = database.create_engine(url)
    try:
        with database.open_transaction(engine, database.describe(url)) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(VERSION_TABLE))))
            action(alembic_config(connection))
    finally:
        engine.dispose()
