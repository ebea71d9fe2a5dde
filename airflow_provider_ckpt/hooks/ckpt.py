"""``CkptHook``: open the ledger from an Airflow task.

The hook defines the Airflow connection type ``ckpt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, locate_ledger, open_ledger

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger


class CkptHook(BaseHook):
    """Hook that opens the ledger, the database with the checkpoints of all pipelines.

    :param ckpt_conn_id: id of the ledger's Airflow connection. The default connection may be undefined; then the option
        ``[ckpt] sql_alchemy_conn`` or the file ``ckpt.db`` in AIRFLOW_HOME is used
    :param logger_name: name of the hook's logger; None for the default logger of its class
    """

    conn_name_attr = "ckpt_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "ckpt"
    hook_name = "Ckpt ledger"

    def __init__(self, ckpt_conn_id: str = DEFAULT_CONNECTION, logger_name: str | None = None) -> None:
        super().__init__(logger_name)
        self.ckpt_conn_id = ckpt_conn_id

    def get_conn(self) -> Ledger:
        """Open the ledger and return it, like :meth:`get_ledger`; Airflow's hooks have a method of this name."""
        return self.get_ledger()

    def get_ledger(self) -> Ledger:
        """Open the ledger and return it; the caller closes it.

        :raises CkptError: if the ledger is not defined, cannot be opened, or has another Alembic revision than this
            version needs
        """
        return open_ledger(self.ckpt_conn_id)

    def get_status(self, pipeline: str) -> dict[str, Any]:
        """Return the status of a pipeline from the ledger, JSON-ready: phase, lease, partitions, batches and more.

        :param pipeline: name of the pipeline
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self.get_ledger() as ledger:
            return ledger.status(pipeline)

    def test_connection(self) -> tuple[bool, str]:
        """Check that the ledger can be opened and has the right Alembic revision.

        Airflow calls this method for the *Test* button of the connection form.

        :return: whether the ledger can be used, and a message with its location, its revision and advice what to do;
            the message contains no password
        """
        from airflow_provider_ckpt.ledger.store import migrate
        from airflow_provider_ckpt.ledger.store.database import MIGRATE

        wanted = migrate.head()
        try:
            location = locate_ledger(self.ckpt_conn_id)
            found = migrate.current_revision(location.url)
            if found == wanted:
                self.get_ledger().close()
        except CkptError as error:
            return False, str(error)
        description = f"{location.where} (named by {location.origin})"
        if found is None:
            return False, f"{description} holds no ledger yet. {MIGRATE}"
        if found != wanted:
            return False, f"{description} holds a ledger at revision {found}; this version needs {wanted}. {MIGRATE}"
        return True, f"{description} holds a ledger at revision {found}, which this version needs."
