"""Open the ledger once for all requests of the API."""

from __future__ import annotations

from threading import Lock
from typing import Annotated

from fastapi import Depends

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger_location import locate_ledger

_lock = Lock()
_opened: dict[str, Ledger] = {}


def shared_ledger() -> Ledger:
    """Return the ledger that all requests share.

    It is opened at the first request, and opened again when its configured location has changed.

    :raises ConfigError: if no ledger is defined
    :raises LedgerUnavailableError: if the ledger cannot be opened, or has another revision than this version needs
    """
    url = locate_ledger().url
    with _lock:
        found = _opened.get(url)
        if found is None:
            found = Ledger.open(url)
            for old in _opened.values():
                old.close()
            _opened.clear()
            _opened[url] = found
        return found


OpenedLedger = Annotated[Ledger, Depends(shared_ledger)]
