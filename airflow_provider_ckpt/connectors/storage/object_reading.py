"""List the objects below a prefix of an object store, and read ranges of an object unless it has changed.

A store lists keys page by page, one request after the other, and one page may take it a tenth of a second. So if many
keys below a prefix are known from before, they divide the prefix into ranges of keys (parts), which are listed at the
same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.storage.bucket import status
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from airflow_provider_ckpt.core.errors import ConfigError, IoError

if TYPE_CHECKING:
    from obstore import ObjectMeta

_PAGE = 1000
"""Number of objects in one page of a listing: the largest number that the stores give."""

_MAX_PARTS = 8
_PART_KEYS = 5 * _PAGE
"""Minimum number of keys in a part of a listing; the parts of a long listing are requested at the same time.

The number is estimated from keys that the caller knows, see :func:`list_in_parts`. Smaller parts are not worthwhile,
since the last page of each part may also contain objects of the next part, which are requested twice.
"""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store, as a listing describes it.

    :param key: the object's key
    :param modified: time at which the object's content was put
    :param size: number of bytes
    :param etag: the store's text that changes when the object's content does
    """

    key: str
    modified: datetime
    size: int
    etag: str

    @property
    def time(self) -> int:
        """Time at which the object's content was put, in ns since 1970."""
        return int(self.modified.timestamp() * 1e9)


def list_objects(directory: ObjectLocation, after: str = "") -> Iterator[StoredObject]:
    """Yield the objects below a prefix, at any depth, as the store lists them page by page.

    :param directory: the prefix
    :param after: yield only objects whose keys are greater than this one; empty for all
    :raises IoError: if the store cannot be reached, or refuses
    :raises ConfigError: if there is no such bucket, if a key contains ``.``, ``..`` or nothing between two slashes,
        which the client library cannot read, or if the store reports no e-tags
    """
    import obstore

    bucket = directory.bucket
    try:
        for page in obstore.list(bucket.store, directory.key or None, offset=after or None, chunk_size=_PAGE):
            for item in page:
                if item["path"] > after:  # not every store honours the start of a listing
                    yield _stored(directory, item)
    except obstore.exceptions.InvalidPathError as error:
        raise ConfigError(
            f"below {directory} is an object with a key that cannot be read: {str(error).partition(chr(10))[0]}.",
            hint="A key must not contain the components . and .. or an empty one. Rename the object.",
        ) from None
    except obstore.exceptions.BaseError as error:
        if status(error) == 404:
            hint = "Create the bucket, or correct the path."
            raise ConfigError(f"there is no bucket {bucket.url}.", hint=hint) from None
        raise bucket.error(error, f"list {directory}") from None


def list_in_parts(directory: ObjectLocation, keys: Sequence[str]) -> Iterator[StoredObject]:
    """Yield all objects below a prefix, as :func:`list_objects` does; parts of a long listing are requested at once.

    :param directory: the prefix
    :param keys: known keys below the prefix, sorted; the parts are chosen so that they have equal numbers of these keys
    :raises IoError: if the store cannot be reached, or refuses
    :raises ConfigError: if there is no such bucket, if a key contains ``.``, ``..`` or nothing between two slashes,
        which the client library cannot read, or if the store reports no e-tags
    """
    count = min(_MAX_PARTS, len(keys) // _PART_KEYS) if directory.bucket.lists_from_any_key else 0
    if count < 2:
        yield from list_objects(directory)
        return
    bounds = [keys[len(keys) * number // count] for number in range(1, count)]
    _ = directory.bucket.store  # opened once, before the threads
    with ThreadPoolExecutor(count) as pool:
        parts = list(pool.map(partial(_list_part, directory), ["", *bounds], [*bounds, None]))
    if None in parts:
        yield from list_objects(directory)
        return
    for part in parts:
        yield from part or ()


def _list_part(directory: ObjectLocation, after: str, last: str | None) -> list[StoredObject] | None:
    """Return the objects in a range of keys, in the order of their keys; None if the store lists in another order.

    :param directory: the prefix
    :param after: the range begins after this key; empty to begin with the first key
    :param last: greatest key of the range, which need not exist; None to go on to the end
    """
    found: list[StoredObject] = []
    for item in list_objects(directory, after):
        if found and item.key <= found[-1].key:
            return None
        if last is not None and item.key > last:
            break
        found.append(item)
    return found


def find_object(location: ObjectLocation) -> StoredObject | None:
    """Return the store's description of an object as it is now; None if there is no such object.

    :param location: the object
    :raises IoError: if the store cannot be reached, or refuses
    :raises ConfigError: if the store reports no e-tags
    """
    import obstore

    try:
        return _stored(location, obstore.head(location.bucket.store, location.key))
    except FileNotFoundError:
        return None
    except obstore.exceptions.BaseError as error:
        raise location.bucket.error(error, f"read {location}") from None


def read_range(location: ObjectLocation, start: int, end: int, etag: str) -> bytes | None:
    """Return the bytes from one offset to another of an object; None if it is missing or has another e-tag.

    :param location: the object
    :param start: offset of the first byte
    :param end: offset just after the last byte, not beyond the object's end
    :param etag: the e-tag that the object must have
    :raises IoError: if the store cannot be reached, refuses, or sends too few bytes
    :raises ConfigError: if the store reports no e-tags
    """
    import obstore

    try:
        found = obstore.get(
            location.bucket.store, location.key, options={"range": (start, end), "if_match": f'"{etag}"'}
        )
        if _stored(location, found.meta).etag != etag:  # a store that ignores the condition
            return None
        data = bytes(found.bytes())
    except (FileNotFoundError, obstore.exceptions.PreconditionError):
        return None
    except obstore.exceptions.BaseError as error:
        raise location.bucket.error(error, f"read {location}") from None
    if len(data) != end - start:
        raise IoError(
            f"cannot read {location}: the store answered with {len(data)} bytes instead of {end - start}.",
            recoverable=True,
            is_outage=True,
        )
    return data


def _stored(location: ObjectLocation, item: ObjectMeta) -> StoredObject:
    etag = (item["e_tag"] or "").strip('"')
    if not etag:
        raise ConfigError(
            f"the object store of {location} reports no e-tags, by which a replaced object would be recognised.",
            hint="Use a store that reports e-tags.",
        )
    return StoredObject(item["path"], item["last_modified"], item["size"], etag)
