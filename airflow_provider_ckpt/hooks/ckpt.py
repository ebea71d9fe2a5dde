"""``CkptHook``: an Airflow task's way to the ledger, and the connection type ``ckpt``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, locate_ledger, open_ledger

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger


class CkptHook(BaseHook):
    """Opens the ledger.

    :param ckpt_conn_id: an Airflow connection of type ``ckpt``; the default one may be missing, then ``[ckpt]
        sql_alchemy_conn`` or ``ckpt.db`` in AIRFLOW_HOME is taken
    :param logger_name: of the hook's logger; its class's by default
    """

    conn_name_attr = "ckpt_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "ckpt"
    hook_name = "Ckpt ledger"

    def __init__(self, ckpt_conn_id: str = DEFAULT_CONNECTION, logger_name: str | None = None) -> None:
        super().__init__(logger_name)
        self.ckpt_conn_id = ckpt_conn_id

    def get_conn(self) -> Ledger:
        """The ledger; the caller closes it."""
        return self.get_ledger()

    def get_ledger(self) -> Ledger:
        """The ledger; the caller closes it.

        :raises CkptError: if it is not defined, cannot be opened, or is at the wrong revision
        """
        return open_ledger(self.ckpt_conn_id)

    def get_status(self, pipeline: str) -> dict[str, Any]:
        """What the ledger knows of a pipeline, as JSON-ready data.

        :param pipeline: its name
        :raises ConfigError: if the ledger does not know it
        """
        with self.get_ledger() as ledger:
            return ledger.status(pipeline)

    def test_connection(self) -> tuple[bool, str]:
        """What is found, for the button in Airflow's connection form: which database, at which revision, what to do.

        Never shows a password.
        """
        from airflow_provider_ckpt.ledger.store import migrate
        from airflow_provider_ckpt.ledger.store.database import MIGRATE

        wanted = migrate.head()
        try:
            location = locate_ledger(self.ckpt_conn_id)
            found = migrate.current(location.url)
            if found == wanted:
                self.get_ledger().close()
        except CkptError as error:
            return False, str(error)
        place = f"{location.where} (named by {location.origin})"
        if found is None:
            return False, f"{place} holds no ledger yet. {MIGRATE}"
        if found != wanted:
            return False, f"{place} holds a ledger at revision {found}; this version works with {wanted}. {MIGRATE}"
        return True, f"{place} holds a ledger at revision {found}, as this version wants it."
