"""Location in an object store: Amazon S3 and stores with its protocol, Google Cloud Storage, Azure Blob Storage.

An object exists, as a whole, once a request to put it is acknowledged, and it is durable then. There are no
directories: a directory is a prefix, and is there as long as an object has that prefix.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.connectors.storage.credentials import StoreOptions
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, IoError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CLIENT = {"timeout": "60s", "connect_timeout": "5s"}
_MAX_RETRIES = 8
_RETRY_TIMEOUT = timedelta(seconds=60)
_PART_BYTES = 16 << 20
"""Size from which an object is put in several parts, in bytes; smaller ones take one request and leave no parts behind.
"""


class Bucket:
    """An open bucket (S3, Google) or container (Azure), shared by the locations in it.

    :param scheme: ``s3``, ``gs`` or ``az``
    :param name: name of the bucket or container
    :param options: credentials and endpoint
    """

    def __init__(self, scheme: str, name: str, options: StoreOptions) -> None:
        self.scheme = scheme
        self.name = name
        self._options = options
        self._store: ObjectStore | None = None

    def beside(self, name: str) -> Bucket:
        """Return another bucket that is opened with the same options."""
        return Bucket(self.scheme, name, self._options)

    @property
    def url(self) -> str:
        """The bucket's URL, such as ``s3://bucket``."""
        return f"{self.scheme}://{self.name}"

    @property
    def storage_options(self) -> dict[str, str]:
        """Options for the Delta library, including secrets."""
        retry = {"max_retries": str(_MAX_RETRIES), "retry_timeout": f"{_RETRY_TIMEOUT.seconds}s"}
        return {**self._options.options, **_CLIENT, **retry}

    @property
    def store(self) -> ObjectStore:
        """The library's client, created at the first use.

        :raises ConfigError: if the library is not installed, or the options are not valid
        """
        if self._store is None:
            self._store = self._open()
        return self._store

    def error(self, error: Exception, operation: str) -> CkptError:
        """Convert an error of the library, and remove secrets from its message.

        :param error: the library's error
        :param operation: the operation and its object, for the message, such as ``write s3://bucket/x``
        """
        from obstore import exceptions

        text = " ".join(str(error).partition("\n\nDebug source:")[0].split()).rstrip(".")
        for secret in self._options.secrets:
            text = text.replace(secret, "***")
        message = f"cannot {operation}: {text or type(error).__name__}."
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            hint = "Correct the connection's credentials, or grant them access, then run again; nothing was lost."
            return IoError(message, recoverable=False, is_outage=True, hint=hint)
        return IoError(message, recoverable=True, is_outage=True)

    def _open(self) -> ObjectStore:
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ImportError:
            raise ConfigError(
                f"{self.url} needs the package obstore, which is not installed.",
                hint="Install it on the worker and on the executors, by the extra object-store of this package.",
            ) from None
        config: dict[str, Any] = dict(self._options.options)
        allow_http = config.pop("allow_http", None) is not None
        if self.scheme == "s3":
            config.setdefault("aws_checksum_algorithm", "sha256")
        client: dict[str, Any] = {**_CLIENT, **({"allow_http": True} if allow_http else {})}
        retry: Any = {"max_retries": _MAX_RETRIES, "retry_timeout": _RETRY_TIMEOUT}
        try:
            opened: ObjectStore = cast("Any", from_url)(
                self.url, config=config, client_options=client, retry_config=retry
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(
                f"{self.url} cannot be opened: {self.error(error, 'open it').message}",
                hint="Correct the connection, or the environment's credentials.",
            ) from None
        return opened


@dataclass(frozen=True, slots=True)
class ObjectLocation(Location):
    """An object, or a prefix, in a bucket; see :class:`.Location`.

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
        """Return the URL."""
        return self.uri

    def __truediv__(self, name: str) -> ObjectLocation:
        """Return an object or prefix below this prefix."""
        return ObjectLocation(self.bucket, f"{self.key}/{name}" if self.key else name)

    def resolve(self, path: str) -> ObjectLocation:
        """Return the location of a URL in a bucket with the same credentials, or of a path relative to this prefix."""
        if "://" not in path:
            return self / path
        bucket, _, key = path.partition("://")[2].partition("/")
        bucket = bucket.partition("@")[0]
        if bucket == self.bucket.name:
            return ObjectLocation(self.bucket, key)
        return ObjectLocation(self.bucket.beside(bucket), key)

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
        :param exclusive: whether to fail if the object exists
        """
        import obstore

        try:
            obstore.put(
                self.bucket.store, self.key, data, mode="create" if exclusive else "overwrite", use_multipart=False
            )
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError) as error:
            if self.read() != data:
                raise IoError(f"cannot write {self}: it exists already.", is_outage=True) from error
        except (obstore.exceptions.BaseError, FileNotFoundError) as error:
            failure = self.bucket.error(error, f"write {self}")
            if not (exclusive and failure.recoverable and self.read() == data):
                raise failure from None

    @contextmanager
    def create(self) -> Iterator[IO[bytes]]:
        """Collect the content in memory, and put the object at the end; see :meth:`.Location.create`."""
        import obstore

        content = io.BytesIO()
        yield content
        data = content.getbuffer()
        try:
            obstore.put(
                self.bucket.store, self.key, data, use_multipart=len(data) > _PART_BYTES, chunk_size=_PART_BYTES
            )
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
        """Return the size in bytes of each object directly below this prefix, by name."""
        return {entry["path"].rpartition("/")[2]: entry["size"] for entry in self._entries()["objects"]}

    def names(self) -> Iterator[str]:
        """Yield the names of the objects and prefixes directly below this prefix."""
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

    def flush(self) -> None:
        """Do nothing: an object is durable once its request was acknowledged."""

    def check_writable(self, key: str) -> None:
        """Put an object twice and remove it, to find out what the store permits; see :class:`.Location`."""
        import obstore

        probe = self / f"_ckpt/probe-{secrets.token_hex(8)}"
        try:
            probe._create(b"1")  # refused if the answer was lost and the client repeated the request
            created_again = probe._create(b"2")
            probe.remove()
            if created_again:
                raise ConfigError(
                    f"{key}: the object store of {self} created an object that existed already, although the request "
                    "had the condition If-None-Match. Two runs could overwrite each other's commits there.",
                    hint="Use a store that honours conditional writes.",
                )
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

    def _create(self, data: bytes) -> bool:
        """Put an object on the condition that it does not exist; return whether the store has done it."""
        import obstore

        try:
            obstore.put(self.bucket.store, self.key, data, mode="create", use_multipart=False)
        except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
            return False
        return True

    def _entries(self) -> Any:
        import obstore

        try:
            return obstore.list_with_delimiter(self.bucket.store, self.key)
        except FileNotFoundError:
            return {"objects": [], "common_prefixes": []}
        except obstore.exceptions.BaseError as error:
            raise self.bucket.error(error, f"list {self}") from None
