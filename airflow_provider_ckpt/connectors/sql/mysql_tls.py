"""Configure TLS of connections to MySQL and MariaDB by the keys in the extra of Airflow's MySQL connections."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from typing import Any

from airflow_provider_ckpt.core.errors import ConfigError

_VERIFY_CA, _VERIFY_IDENTITY = "VERIFY_CA", "VERIFY_IDENTITY"
_MODES = ("DISABLED", "PREFERRED", "REQUIRED", _VERIFY_CA, _VERIFY_IDENTITY)


def tls_arguments(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the driver's arguments for TLS.

    They are empty for the mode ``PREFERRED`` without files: the driver then uses TLS if the server offers it.

    :param extra: ``ssl_mode`` (by default ``VERIFY_IDENTITY`` if there is a file ``ca``, else ``PREFERRED``), and
        ``ssl`` with the files ``ca``, ``cert`` and ``key``, as a mapping or JSON text
    :raises ConfigError: if the mode is unknown
    """
    given = extra.get("ssl")
    files = dict(json.loads(given) if isinstance(given, str) else given) if given else {}
    mode = str(extra.get("ssl_mode", _VERIFY_IDENTITY if files.get("ca") else "PREFERRED")).upper()
    if mode not in _MODES:
        raise ConfigError(f"ssl_mode: {mode} is unknown.", hint=f"Write one of {', '.join(_MODES)}.")
    if mode == "DISABLED":
        return {"ssl_disabled": True}
    if mode == "PREFERRED" and not files:
        return {}
    context = ssl.create_default_context(cafile=files.get("ca"))
    context.check_hostname = mode == _VERIFY_IDENTITY
    context.verify_mode = ssl.CERT_REQUIRED if mode in (_VERIFY_CA, _VERIFY_IDENTITY) else ssl.CERT_NONE
    if files.get("cert"):
        context.load_cert_chain(files["cert"], files.get("key"))
    return {"ssl": context}
