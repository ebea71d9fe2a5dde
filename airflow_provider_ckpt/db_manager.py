"""Database manager by which ``airflow db migrate`` also migrates the ledger.

``airflow db reset`` does not change the ledger. Airflow passes a session of its metadata database to each database
manager; this one does not use it, but finds the ledger by the ledger's connection. ``ledger.store.migrate`` has the
migrations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.utils.db_manager import BaseDBManager

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.ledger.store.tables import VERSION_TABLE
from airflow_provider_ckpt.ledger.store.tables import metadata as ledger_metadata
from airflow_provider_ckpt.ledger_location import LedgerLocation, locate_ledger

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy.engine import Connection
    from sqlalchemy.orm import Session


class CkptDBManager(BaseDBManager):
    """Database manager of the ledger: the provider registers it with Airflow, whose ``db`` commands call it.

    :param session: session of Airflow's metadata database; not used
    """

    metadata = ledger_metadata
    migration_dir = str(migrate.MIGRATIONS)
    version_table_name = VERSION_TABLE
    supports_table_dropping = False

    def __init__(self, session: Session) -> None:
        super().__init__(session)  # type: ignore[no-untyped-call]
        self._location: LedgerLocation | None = None
        try:
            self._location = locate_ledger()
        except CkptError as error:
            # Installing the provider must not break `airflow db migrate` of a deployment that has no ledger yet.
            self.log.warning("No ledger to migrate: %s", error)

    def get_alembic_config(self) -> Config:
        """Return Alembic's configuration of the ledger's migrations, with the ledger's URL if one is configured."""
        config = migrate.alembic_config()
        if self._location is not None:
            config.set_main_option("sqlalchemy.url", self._location.url.replace("%", "%%"))
        return config

    def get_current_revision(self) -> str | None:
        """Return the ledger's Alembic revision; None before its first migration, or if no ledger is configured."""
        return migrate.current_revision(self._location.url) if self._location else None

    def check_migration(self) -> bool:
        """Return whether the ledger has the Alembic revision that this version needs; True if no ledger is configured.

        The result is False while the ledger's server does not answer, so that ``airflow db check-migrations`` waits for
        it.
        """
        try:
            return self._location is None or self.get_current_revision() == migrate.head()
        except CkptError as error:
            self.log.warning("The ledger cannot be checked: %s", error)
            return False

    def create_db_from_orm(self) -> None:
        """Create the tables of the ledger by its migrations, since the ledger has no ORM models."""
        self.upgradedb()

    def upgradedb(
        self,
        to_revision: str | None = None,
        from_revision: str | None = None,
        show_sql_only: bool = False,
        use_migration_files: bool = False,
    ) -> None:
        """Create the ledger, or upgrade it to the Alembic revision that this version needs.

        If no ledger is configured, nothing is done. All parameters are ignored; Airflow passes them to every database
        manager.

        :param to_revision: ignored
        :param from_revision: ignored
        :param show_sql_only: ignored
        :param use_migration_files: ignored
        """
        del to_revision, from_revision, show_sql_only, use_migration_files
        if self._location is not None:
            migrate.upgrade(self._location.url, create=True)
            self.log.info("The ledger is up to date: %s (%s)", self._location.where, self._location.origin)

    def downgrade(self, to_revision: str, from_revision: str | None = None, show_sql_only: bool = False) -> None:
        """Downgrade the ledger to an older Alembic revision; do nothing if no ledger is configured.

        :param to_revision: the older revision
        :param from_revision: ignored
        :param show_sql_only: ignored
        """
        del from_revision, show_sql_only
        if self._location is not None:
            migrate.downgrade(self._location.url, to_revision)

    def drop_tables(self, connection: Connection) -> None:
        """Do nothing: the ledger outlives a reset of Airflow's metadata database."""
        del connection

    def resetdb(self, skip_init: bool = False, use_migration_files: bool = False) -> None:
        """Refuse to reset the ledger.

        :raises RuntimeError: always; to delete a ledger, drop its tables in its database
        """
        del skip_init, use_migration_files
        raise RuntimeError(
            "the ledger is not reset: it records what was delivered. To delete it, drop its tables by hand."
        )

    def _get_migration_ctx(self) -> Any:
        raise NotImplementedError("the ledger is not in Airflow's database")
