"""Find RESTORE operations in a Delta table's log, and the older versions whose content the table has again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.delta.table import delta_error, options
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.core.errors import SinkError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_RESTORE = "RESTORE"
_BOUNDS = ("version", "datetime", "timestamp")


def restored_version(table: DeltaTable, path: Location, since: int) -> int | None:
    """Return the version before ``since`` to which RESTORE operations have set a Delta table back; else None.

    If a RESTORE brought back a version that an earlier RESTORE had created, the result is the version that the earlier
    one brought back. A RESTORE that undoes an earlier one, by bringing back version ``since`` or a later version, is
    not reported.

    :param table: the newest version of the table
    :param path: directory of the table
    :param since: number of a version; only restores that came after it are examined
    :raises SinkError: if the log has a restore whose version cannot be determined
    :raises IoError: if the log cannot be read
    """
    at = table.version()
    restores = {
        version: bounds
        for version in range(since + 1, at + 1)
        if (bounds := _restore_parameters(path, version)) is not None
    }
    for version in sorted(restores, reverse=True):
        if version <= at:
            at = _restored_to(path, version, restores[version])
    return at if at < since else None


def _restore_parameters(path: Location, version: int) -> dict[str, Any] | None:
    """Return the parameters of the RESTORE that created a version: number or time of the older version to restore.

    :param path: directory of the table
    :param version: number of the version
    :return: None if another operation created the version, or if the version's log entry is gone
    """
    file = path / "_delta_log" / f"{version:020d}.json"
    for line in (file.read() or b"").splitlines():
        if b'"RESTORE"' in line:
            info = json.loads(line).get("commitInfo") or {}
            if info.get("operation") == _RESTORE:
                return {name: value for name, value in _parameters(info) if name in _BOUNDS and value is not None}
    return None


def _parameters(info: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    parameters = info.get("operationParameters")
    return parameters.items() if isinstance(parameters, dict) else ()


def _restored_to(path: Location, version: int, bounds: dict[str, Any]) -> int:
    """Return the number of the version whose content a RESTORE brought back.

    :param path: directory of the table
    :param version: number of the version that the RESTORE created
    :param bounds: parameters of the RESTORE, as :func:`_restore_parameters` returns them
    :raises SinkError: if the version cannot be determined
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    number = str(bounds.get("version", ""))
    if number.isdecimal() and int(number) < version:
        return int(number)
    moment = next((found for name in _BOUNDS[1:] if (found := _parse_time(bounds.get(name))) is not None), None)
    if moment is None:
        raise SinkError(
            f"version {version} of {path} was created by RESTORE, and its log entry names the restored version or time "
            f"in an unknown form: {json.dumps(bounds)}.",
            is_outage=True,
            hint="Restore the table again to the intended version, by number: RESTORE TABLE … TO VERSION AS OF ….",
        )
    try:
        table = DeltaTable(path.uri, version=version - 1, storage_options=options(path))
        table.load_as_version(moment)
    except (DeltaError, OSError) as error:
        raise delta_error(error, f"find the version of {path} as of {moment}") from error
    return min(table.version(), version - 1)


def _parse_time(value: Any) -> datetime | None:
    """Parse a time as Delta writers store it, in ms since 1970 or by ISO 8601; return None for anything else.

    :param value: the time, a number or text
    """
    text = str(value)
    try:
        if text.lstrip("-").isdecimal():
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
