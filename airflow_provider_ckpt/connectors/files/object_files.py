"""Storage of a files source in an object store: list all or only the newest keys, and refuse changed objects.

An object is identified by its size and its e-tag, which changes when the object is replaced. Each request for a part of
an object has the condition that the object still has this e-tag, so a read never mixes bytes of two versions.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from glob import has_magic
from typing import BinaryIO, Self, cast

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.discovery import Discovery, discover
from airflow_provider_ckpt.connectors.files.found_files import FoundFile, Listing
from airflow_provider_ckpt.connectors.files.listing import CROSSES, HIDDEN, UNFINISHED_SUFFIXES, check_pattern
from airflow_provider_ckpt.connectors.files.own_output import matches_objects
from airflow_provider_ckpt.connectors.files.source_storage import SourceStorage
from airflow_provider_ckpt.connectors.outputs import WrittenFiles
from airflow_provider_ckpt.connectors.source_plan import SourceFile
from airflow_provider_ckpt.connectors.storage.object_reading import (
    StoredObject,
    find_object,
    list_in_parts,
    list_objects,
    read_range,
)
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.core.errors import CkptError, IoError, SourceError

_OVERLAP = 1000
"""Number of the greatest known keys that a listing of new objects covers again.

An object may become visible after objects with greater keys, so a listing that began after the greatest known key would
miss it.
"""


@dataclass(frozen=True, slots=True)
class ObjectIdentity:
    """Identity of an object in an object store, which changes when the object is replaced.

    :param size: number of bytes
    :param etag: the store's e-tag
    """

    size: int
    etag: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Restore an identity from its :attr:`text`."""
        size, _, etag = text.partition("-")
        return cls(int(size), etag)

    @property
    def text(self) -> str:
        """The identity as text, as the ledger stores it."""
        return f"{self.size}-{self.etag}"


class ObjectFiles(SourceStorage):
    """Storage of a files source in an object store; see :class:`SourceStorage`.

    :param url: URL of an object; of a prefix, whose objects are read, but not those of prefixes below it; or a glob
        pattern, in which ``**`` matches any number of prefixes
    :param connection: the store's connection; None for the credentials of the environment
    :param names_grow: whether new objects always have greater keys than known ones, so that a listing can begin at the
        last 1,000 known objects
    """

    remote = True

    def __init__(self, url: str, connection: Connection | None, *, names_grow: bool) -> None:
        scheme, _, rest = url.partition("://")
        bucket, *components = rest.rstrip("/").split("/")
        static = next((at for at, part in enumerate(components) if has_magic(part)), len(components))
        self._pattern = components[static:]
        self._parts = [*self._pattern, "*"] if self._pattern[-1:] in ([], [CROSSES]) else self._pattern
        self._names_grow = names_grow
        # A bucket as a whole has no URL with a prefix, but any prefix in it has the bucket as its parent.
        parent = f"{scheme}://{'/'.join([bucket, *(components[:static] or ['_'])])}"
        location = cast("ObjectLocation", open_location(parent, "source.path", connection))
        self._parent = location if static else location.parent

    @property
    def root(self) -> str:
        """URL of the prefix, pattern or object that the source names; see :attr:`SourceStorage.root`."""
        return "/".join([self._parent.uri.rstrip("/"), *self._pattern])

    def check(self) -> None:
        """Raise an error if the bucket is missing, the store refuses access, or the pattern is malformed.

        See :meth:`SourceStorage.check`.
        """
        check_pattern(self._pattern)
        next(list_objects(self._parent), None)

    def discover(self, known: Sequence[SourceFile], *, delivered: int = 0, look_again: bool = True) -> Discovery:
        """List objects, and return those that are new, missing or refused; see :meth:`SourceStorage.discover`.

        Objects without content, with which consoles mark folders, are left out. If known objects are not to be checked,
        or keys grow (``names_grow``), the listing begins at the last 1,000 known keys.

        :param known: all objects discovered before, in order
        :param delivered: end of the delivered positions: all positions before it have a verdict. Only for known objects
            that end there or before, removal or replacement is reported
        :param look_again: whether to check known objects, too
        """
        check_pattern(self._pattern)
        prefix = len(self._parent.bucket.url) + 1
        names = sorted(file.path[prefix:] for file in known)
        begins_late = (self._names_grow or not look_again) and len(names) >= _OVERLAP
        after = names[-_OVERLAP] if begins_late else ""
        checked = [file for file in known if file.path[prefix:] > after] if look_again else ()
        listing = self._list(after, names, {file.path: file.etag for file in known}, look_again=look_again)
        found = discover(self.root, listing, known, _replaced_error, delivered=delivered, checked=checked)
        return replace(found, unchanged=listing.unchanged) if look_again else found

    def open(self, path: str, etag: str, *, checked: bool = False) -> BinaryIO:
        """Open a recorded object; each read verifies that it is unchanged. See :meth:`SourceStorage.open`.

        :param path: URL of the object
        :param etag: recorded identity of the object
        :param checked: whether the object was verified a moment ago, so that opening it makes no request
        """
        identity = ObjectIdentity.parse(etag)
        location = self._parent.resolve(path)
        if not checked:
            _verify(location, identity)
        return cast("BinaryIO", _ObjectFile(location, identity))

    def verify(self, path: str, etag: str, file: BinaryIO | None = None) -> None:
        """Do nothing, since each request for content has the e-tag as its condition.

        :param path: URL of the object
        :param etag: recorded identity of the object
        :param file: the open object
        """

    def is_unchanged(self, path: str, etag: str) -> bool:
        """Return whether an object exists and has its recorded e-tag; see :meth:`SourceStorage.is_unchanged`."""
        found = find_object(self._parent.resolve(path))
        return found is not None and found.etag == ObjectIdentity.parse(etag).etag

    def read_error(self, path: str, etag: str, error: OSError) -> CkptError:  # noqa: ARG002
        """Return the exception for a recorded object that cannot be read; see :meth:`SourceStorage.read_error`.

        :param path: URL of the object
        :param etag: recorded identity of the object
        :param error: the operating system's error
        """
        return IoError(f"cannot read {path}: {error}.", recoverable=True, is_outage=True)

    def contains(self, output: WrittenFiles) -> bool:
        """Return whether a sink writes objects that the source reads; see :meth:`SourceStorage.contains`."""
        directory = output.directory
        if not isinstance(directory, ObjectLocation) or not self._parent.bucket.is_same(directory.bucket):
            return False
        return matches_objects(self._parent.key, self._parts, output)

    def _list(self, after: str, names: Sequence[str], known: Mapping[str, str], *, look_again: bool) -> Listing:
        """Return the objects that match the source's prefix or pattern, divided into unchanged and found ones.

        :param after: key after which to begin; empty to begin with the first
        :param names: known keys, sorted
        :param known: recorded identity of each known object as text, by URL
        :param look_again: whether a known object that has another identity now is listed as a found file; otherwise
            each known object counts as unchanged
        """
        listing = Listing(bool(self._pattern))
        bucket = f"{self._parent.bucket.url}/"
        start = len(self._parent.key) + 1 if self._parent.key else 0
        unchanged = listing.unchanged
        for item in self._objects(after, names):
            url, size = bucket + item.key, item.size
            recorded = known.get(url)
            if recorded is not None and (not look_again or recorded == f"{size}-{item.etag}"):
                unchanged.add(url)  # not matched with the pattern again, which saves time: most objects are known
            elif not size:
                continue
            elif item.key == self._parent.key or is_match(self._parts, item.key[start:].split("/")):
                listing.files[url] = FoundFile(item.time, size, ObjectIdentity(size, item.etag).text)
            else:
                listing.others += 1
        return listing

    def _objects(self, after: str, names: Sequence[str]) -> Iterable[StoredObject]:
        """Return the one object that ``source.path`` names, or else the objects below the prefix.

        :param after: key after which a listing begins; empty to list all objects
        :param names: known keys, sorted, which divide a listing of all objects into parts
        """
        found = None if self._pattern or not self._parent.key else find_object(self._parent)
        if found is not None and found.size:
            return [found]
        return list_objects(self._parent, after) if after else list_in_parts(self._parent, names)


def is_match(pattern: Sequence[str], components: Sequence[str]) -> bool:
    """Return whether a glob pattern matches an object's key.

    No pattern matches a key with the suffix of an unfinished file (:data:`UNFINISHED_SUFFIXES`), or with a hidden
    component (:data:`HIDDEN`).

    :param pattern: components of the pattern, from the first one with a wildcard on; ``**`` matches any number of
        components, and is never the last
    :param components: components of the key, without those that precede the pattern's first wildcard
    """
    if components[-1].endswith(UNFINISHED_SUFFIXES):
        return False
    return _matches(pattern, components)


def _matches(pattern: Sequence[str], components: Sequence[str]) -> bool:
    if not pattern or not components:
        return not pattern and not components
    if pattern[0] == CROSSES:
        below = len(components) > 1 and not components[0].startswith(HIDDEN) and _matches(pattern, components[1:])
        return below or _matches(pattern[1:], components)
    if components[0].startswith(HIDDEN) or not fnmatchcase(components[0], pattern[0]):
        return False
    return _matches(pattern[1:], components[1:])


class _ObjectFile(io.RawIOBase):
    """Read-only file-like view of an object: each read is a request for one range of bytes, and no bytes are kept.

    A read fails if the object was replaced or removed since it was discovered.

    :param location: the object
    :param identity: size and e-tag of the object when it was discovered
    """

    def __init__(self, location: ObjectLocation, identity: ObjectIdentity) -> None:
        super().__init__()
        self.name = str(location)
        self._location = location
        self._identity = identity
        self._at = 0

    def readable(self) -> bool:
        """Return True, since the object can be read."""
        return True

    def seekable(self) -> bool:
        """Return True, since each read may begin at any offset."""
        return True

    def tell(self) -> int:
        """Return the offset at which the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset; see :meth:`io.IOBase.seek`."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._identity.size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return the given number of bytes, or fewer at the object's end; all remaining bytes for a negative number.

        :param size: number of bytes
        :raises SourceError: if the object was replaced or removed
        :raises IoError: if the store cannot be reached, or refuses
        """
        end = self._identity.size if size < 0 else min(self._at + size, self._identity.size)
        if end <= self._at:
            return b""
        data = read_range(self._location, self._at, end, self._identity.etag)
        if data is None:
            _verify(self._location, self._identity)
            raise IoError(
                f"cannot read {self.name}: the store refused its own e-tag.", recoverable=True, is_outage=True
            )
        self._at = end
        return data


def _verify(location: ObjectLocation, recorded: ObjectIdentity) -> None:
    """Raise an error if an object does not have its recorded identity.

    :param location: the object
    :param recorded: its recorded identity
    :raises SourceError: if the object was replaced or removed
    """
    found = find_object(location)
    if found is None:
        raise SourceError(
            f"{location} is gone; it was recorded with {recorded.size} bytes (e-tag {recorded.etag}) and is still "
            "needed.",
            hint="Restore that version of the object, or give up its content: `airflow ckpt inspect` names its batches "
            "and `airflow ckpt skip PIPELINE BATCH --reason …` skips them.",
        )
    if found.etag != recorded.etag:
        raise SourceError(
            f"{location} was replaced after it was discovered: recorded {recorded.size} bytes (e-tag {recorded.etag}), "
            f"now {found.size} bytes (e-tag {found.etag}).",
            hint="Restore the recorded version of the object; bring new data under a new name.",
        )


def _replaced_error(file: SourceFile, found: FoundFile) -> SourceError:
    """Return the error with which discovery reports a delivered object that was replaced: its content is not sent.

    :param file: the object as it was recorded
    :param found: the object that has this name now
    """
    was, now = ObjectIdentity.parse(file.etag), ObjectIdentity.parse(found.etag)
    return SourceError(
        f"{file.path} was replaced after it was delivered: it was {was.size} bytes (e-tag {was.etag}) and is "
        f"{now.size} bytes (e-tag {now.etag}) now. Its current content is not delivered.",
        position=file.base,
        hint="To deliver its whole current content, copy the object to a new name, and restore the recorded version or "
        "remove the object.",
    )
