"""Read, write and list objects of an object store, and check that the store honours conditional requests.

Stores are Amazon S3 and others with its protocol, Google Cloud Storage, and Azure Blob Storage. An object exists, as a
whole, once a request to put it is acknowledged, and it is durable then. There are no directories: a directory is a
prefix, and exists as long as an object has that prefix.
"""

from __future__ import annotations

import io
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from airflow_provider_ckpt.connectors.storage.bucket import Bucket
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.core.errors import ConfigError, IoError

_PUT_PAUSES = (0.1, 0.4, 1.6)
"""Seconds to wait before each repetition of a request to put an object, if the connection broke."""

_PART_BYTES = 16 << 20
"""Size in bytes above which an object is put in several parts, and the size of these parts.

A smaller object takes one request, so that a failed write leaves no parts behind.
"""

ObjectVersion = Mapping[str, str]
"""Version of an object's content, as the store reports it: its e-tag, and its version id if the store has them."""


def _version(etag: str | None, version: str | None) -> ObjectVersion:
    return {name: value for name, value in (("e_tag", etag), ("version", version)) if value is not None}


@dataclass(frozen=True, slots=True)
class ObjectLocation(Location):
    """An object, or a prefix of objects, in a bucket of an object store; see :class:`.Location`.

    :param bucket: the bucket or container
    :param key: key of the object, or prefix without a slash at its end
    """

    bucket: Bucket = field(compare=False)
    key: str

    @property
    def name(self) -> str:
        """Last component of the key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectLocation:
        """The prefix that contains this object or prefix."""
        return ObjectLocation(self.bucket, self.key.rpartition("/")[0])

    @property
    def uri(self) -> str:
        """URL of the object or prefix."""
        return f"{self.bucket.url}/{self.key}"

    @property
    def storage_options(self) -> Mapping[str, str]:
        """Options with which the Delta library opens the bucket, including secrets."""
        return self.bucket.storage_options

    def __str__(self) -> str:
        """Return the URL of the object or prefix, for messages."""
        return self.uri

    def __truediv__(self, name: str) -> ObjectLocation:
        """Return the location of an object or prefix below this prefix.

        :param name: one or more components, separated by ``/``
        """
        return ObjectLocation(self.bucket, f"{self.key}/{name}" if self.key else name)

    def resolve(self, path: str) -> ObjectLocation:
        """Return the location of a URL in this store, or of a path relative to this prefix.

        :param path: the path or URL; a URL may name another bucket, which must accept the same credentials
        """
        if "://" not in path:
            return self / path
        bucket, _, key = path.partition("://")[2].partition("/")
        bucket = bucket.partition("@")[0]
        if bucket == self.bucket.name:
            return ObjectLocation(self.bucket, key)
        return ObjectLocation(self.bucket.sibling(bucket), key)

    def read(self) -> bytes | None:
        """Return the content of the object; None if there is no such object."""
        import obstore

        try:
            return bytes(obstore.get(self.bucket.store, self.key).bytes())
        except FileNotFoundError:
            return None
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"read {self}") from None

    def write(self, data: bytes, *, exclusive: bool = False) -> None:
        """Put an object; see :meth:`.Location.write`.

        A request whose answer was lost may have been carried out, and be refused when it is repeated. So if an
        exclusive write is refused or has no answer, the object is read back, and counts as written if it has exactly
        this content.

        :param data: content of the object
        :param exclusive: whether to fail if an object with other content exists, instead of replacing it
        :raises IoError: if such an object exists and ``exclusive`` is set, or the store fails
        """
        import obstore

        try:
            self._put(data, mode="create" if exclusive else "overwrite", use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError) as error:
            if self.read() != data:
                raise IoError(f"cannot write {self}: it exists already.", is_outage=True) from error
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            failure = self.bucket.error(error, f"write {self}")
            if not (exclusive and failure.recoverable and self.read() == data):
                raise failure from None

    @contextmanager
    def create(self) -> Iterator[IO[bytes]]:
        """Open a buffer in memory for writing, and put its content as the object at the end of the context.

        If the context ends with an error, no object is put. See :meth:`.Location.create`.

        :raises IoError: if the store cannot be reached, or refuses
        """
        import obstore

        content = io.BytesIO()
        yield content
        data = content.getbuffer()
        try:
            self._put(data, use_multipart=len(data) > _PART_BYTES, chunk_size=_PART_BYTES)
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise self.bucket.error(error, f"write {self}") from None

    def remove(self) -> None:
        """Remove the object, if it exists."""
        import obstore

        try:
            obstore.delete(self.bucket.store, self.key)
        except FileNotFoundError:
            return
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"remove {self}") from None

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each object directly below this prefix, by the last component of its key."""
        return {entry["path"].rpartition("/")[2]: entry["size"] for entry in self._entries()["objects"]}

    def names(self) -> Iterator[str]:
        """Yield the names of the objects and prefixes directly below this prefix: the last components of their keys."""
        found = self._entries()
        for path in (*(entry["path"] for entry in found["objects"]), *found["common_prefixes"]):
            yield path.rstrip("/").rpartition("/")[2]

    def size(self) -> int | None:
        """Return the size of the object in bytes; None if there is no such object."""
        import obstore

        try:
            return int(obstore.head(self.bucket.store, self.key)["size"])
        except FileNotFoundError:
            return None
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"read the size of {self}") from None

    def read_version(self) -> tuple[bytes, ObjectVersion] | None:
        """Return the content of the object, and its version for :meth:`swap`; None if there is no such object."""
        import obstore

        try:
            found = obstore.get(self.bucket.store, self.key)
            meta = found.meta
            return bytes(found.bytes()), _version(meta["e_tag"], meta["version"])
        except FileNotFoundError:
            return None
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"read {self}") from None

    def swap(self, data: bytes, known: ObjectVersion | None) -> bool:
        """Replace the object if its version is the known one; return False if the store refuses that.

        False does not prove that another process has replaced the object: if the answer to a request is lost, the
        request is repeated, and then refused because it has been carried out. So read the object again, whatever the
        result; also after an error.

        :param data: the new content, which must differ from every content that the object ever had
        :param known: version of the content to replace; None if there must be no such object
        :raises IoError: if the store cannot be reached, or refuses for another reason
        """
        import obstore

        mode = "create" if known is None else dict(known)
        try:
            self._put(data, mode=mode, use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return False
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            raise self.bucket.error(error, f"write {self}") from None
        return True

    def copy_to(self, target: ObjectLocation) -> bool:
        """Copy the object within its bucket, replacing an existing one; return False if there is no such object.

        :param target: the copy
        :raises IoError: if the store cannot be reached, or refuses
        """
        import obstore

        try:
            obstore.copy(self.bucket.store, self.key, target.key)
        except FileNotFoundError:
            return False
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"copy {self} to {target}") from None
        return True

    def objects(self) -> Iterator[str]:
        """Yield the keys of all objects below this prefix, at any depth, each without the prefix and its slash."""
        import obstore

        start = len(self.key) + 1 if self.key else 0
        try:
            for page in obstore.list(self.bucket.store, self.key):
                yield from (entry["path"][start:] for entry in page)
        except FileNotFoundError:
            return
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"list {self}") from None

    def flush(self) -> None:
        """Do nothing: an object is durable once its request was acknowledged."""

    def check_writable(self, key: str) -> None:
        """Raise an error if the store does not let objects be put and removed, or ignores the conditions of requests.

        A probe object is put several times and removed. See :meth:`.Location.check_writable`.

        :param key: key of the pipeline's declaration that names the directory, for the message
        :raises ConfigError: if there is no such bucket, access is denied, or the store ignores conditions
        :raises IoError: if the store cannot be reached
        """
        import obstore

        probe = self / f"_ckpt/probe-{secrets.token_hex(8)}"
        try:
            probe._refuses(b"1", "create")  # a refusal is no error: the answer to a first request may have been lost
            first = probe.read_version()
            self._refuse_unconditional(probe, "create", key)
            probe._put(b"3", mode="overwrite", use_multipart=False)
            if first is not None:
                self._refuse_unconditional(probe, first[1], key)
            probe.remove()
        except FileNotFoundError:
            raise ConfigError(
                f"{key}: there is no bucket {self.bucket.url}.", hint=f"Create the bucket, or correct {key}."
            ) from None
        except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
            raise ConfigError(
                self.bucket.error(error, f"write to {self}").message,
                hint="Correct the credentials, or grant them access.",
            ) from None
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"write to {self}") from None

    def _refuse_unconditional(self, probe: ObjectLocation, condition: str | ObjectVersion, key: str) -> None:
        """Raise an error if the store replaces an object although the condition of the request does not hold.

        :param probe: an existing object
        :param condition: ``create``, or a version that the object does not have any more
        :param key: key of the pipeline's declaration that names the directory, for the message
        :raises ConfigError: naming the condition that the store ignores
        """
        if probe._refuses(b"2", condition):
            return
        probe.remove()
        header = "If-None-Match" if condition == "create" else "If-Match"
        raise ConfigError(
            f"{key}: the object store of {self} replaced an object although the condition {header} of the request did "
            "not hold. Two runs could overwrite each other's commits there.",
            hint="Use a store that honours conditional writes.",
        )

    def _refuses(self, data: bytes, condition: str | ObjectVersion) -> bool:
        """Put the object under a condition; return whether the store refuses, because the condition does not hold.

        :param data: content of the object
        :param condition: ``create`` if there must be no object, or the version that the object must have
        """
        import obstore

        try:
            self._put(data, mode=condition, use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return True
        return False

    def _put(self, data: bytes | memoryview, **options: Any) -> None:
        """Put the object; repeat the request if the connection broke, since the library does not.

        :param data: content of the object
        :param options: options of the library's ``put``
        """
        import obstore

        for pause in _PUT_PAUSES:
            try:
                obstore.put(self.bucket.store, self.key, data, **options)
            except obstore.exceptions.GenericError:
                time.sleep(pause)
            else:
                return
        obstore.put(self.bucket.store, self.key, data, **options)

    def _entries(self) -> Any:
        import obstore

        try:
            return obstore.list_with_delimiter(self.bucket.store, self.key)
        except FileNotFoundError:
            return {"objects": [], "common_prefixes": []}
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"list {self}") from None
