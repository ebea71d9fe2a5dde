"""Lets ``airflow db migrate`` migrate the ledger, wherever it is; ``airflow db reset`` never touches it.

Airflow hands over a session of its own metadata database. The ledger is elsewhere, so only the connection's lookup
is Airflow's; every migration goes through ``ledger.migrate``.
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
    """The ledger's database manager, registered by the provider."""

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
            # Installing the provider must not break the migration of a deployment that has no ledger yet.
            self.log.warning("No ledger to migrate: %s", error)

    def get_alembic_config(self) -> Config:
        """Alembic's configuration, for the ledger's own URL."""
        config = migrate.config()
        if self._location is not None:
            config.set_main_option("sqlalchemy.url", self._location.url.replace("%", "%%"))
        return config

    def get_current_revision(self) -> str | None:
        """The ledger's revision, None before its first migration or without a ledger."""
        return migrate.current(self._location.url) if self._location else None

    def check_migration(self) -> bool:
        """Whether the ledger is at this version's revision; True where no ledger is configured.

        False while its server does not answer, so that ``airflow db check-migrations`` waits for it.
        """
        try:
            return self._location is None or self.get_current_revision() == migrate.head()
        except CkptError as error:
            self.log.warning("The ledger cannot be checked: %s", error)
            return False

    def create_db_from_orm(self) -> None:
        """Create the ledger; there is one way to do it, the migrations."""
        self.upgradedb()

    def upgradedb(
        self,
        to_revision: str | None = None,
        from_revision: str | None = None,
        show_sql_only: bool = False,
        use_migration_files: bool = False,
    ) -> None:
        """Create or upgrade the ledger to this version's revision."""
        del to_revision, from_revision, show_sql_only, use_migration_files
        if self._location is not None:
            migrate.upgrade(self._location.url, create=True)
            self.log.info("The ledger is up to date: %s (%s)", self._location.where, self._location.origin)

    def downgrade(self, to_revision: str, from_revision: str | None = None, show_sql_only: bool = False) -> None:
        """Take the ledger back to an older revision."""
        del from_revision, show_sql_only
        if self._location is not None:
            migrate.downgrade(self._location.url, to_revision)

    def drop_tables(self, connection: Connection) -> None:
        """Nothing: the ledger outlives a reset of Airflow's metadata."""
        del connection

    def resetdb(self, skip_init: bool = False, use_migration_files: bool = False) -> None:
        """Refused.

        :raises RuntimeError: always; a ledger's loss is a person's decision, taken in its database
        """
        del skip_init, use_migration_files
        raise RuntimeError(
            "the ledger is not reset: it remembers what was delivered. Drop its tables by hand if you must."
        )

    def _get_migration_ctx(self) -> Any:
        raise NotImplementedError("the ledger is not in Airflow's database")
