"""Open a bucket of an object store: its client, the options for the Delta library, and the conversion of errors."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.connectors.storage.credentials import StoreOptions
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, IoError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CLIENT = {"timeout": "60s", "connect_timeout": "5s"}
_MAX_RETRIES = 8
_RETRY_TIMEOUT = timedelta(seconds=60)
_SERVER_MESSAGE = re.compile(r"<Message>(.*?)</Message>")
_STATUS = re.compile(r"status code: (\d+)")
_BAD_CREDENTIALS = re.compile(r"<Code>(?:ExpiredToken|InvalidToken|AuthorizationHeaderMalformed)</Code>")
"""Codes with which S3 refuses credentials, or a wrong region, with the status 400, which other errors have, too."""


def status(error: Exception) -> int | None:
    """Return the HTTP status with which an object store answered a failed request; None if it did not answer.

    The status is taken from the error's text, since for some requests, such as listings, the error's class does not
    reveal it.

    :param error: the client library's error
    """
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


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

    def sibling(self, name: str) -> Bucket:
        """Return another bucket of the same store, opened with the same options.

        :param name: name of the other bucket
        """
        return Bucket(self.scheme, name, self._options)

    def is_same(self, other: Bucket) -> bool:
        """Return whether another bucket is this one: the same name at the same endpoint, or in the same account.

        :param other: the other bucket
        """
        return (self.url, self._options.place) == (other.url, other._options.place)

    @property
    def url(self) -> str:
        """The bucket's URL, such as ``s3://bucket``."""
        return f"{self.scheme}://{self.name}"

    @property
    def lists_from_any_key(self) -> bool:
        """True if the store can begin a listing at any key; False for Azure, which goes through all earlier keys."""
        return self.scheme != "az"

    @property
    def storage_options(self) -> dict[str, str]:
        """Options with which the Delta library opens the bucket, including secrets."""
        retry = {"max_retries": str(_MAX_RETRIES), "retry_timeout": f"{_RETRY_TIMEOUT.seconds}s"}
        return {**self._options.options, **_CLIENT, **retry}

    @property
    def store(self) -> ObjectStore:
        """The client library's object for the bucket, created at the first use.

        :raises ConfigError: if the library is not installed, or the options are not valid
        """
        if self._store is None:
            self._store = self._open()
        return self._store

    def error(self, error: Exception, operation: str) -> CkptError:
        """Convert an error of the client library to an :class:`IoError`, and remove secrets from its message.

        :param error: the library's error
        :param operation: the operation and its object, for the message, such as ``write s3://bucket/x``
        :return: the error, which the caller raises. It is marked as an outage, and as recoverable unless the store
            has denied access or refused the credentials
        """
        from obstore import exceptions

        text = " ".join(str(error).partition("\n\nDebug source:")[0].split())
        said = _SERVER_MESSAGE.search(text)
        text = (text.partition(": <")[0] + (f": {said[1]}" if said else "")).rstrip(".")
        for secret in self._options.secrets:
            text = text.replace(secret, "***")
        message = f"cannot {operation}: {text or type(error).__name__}."
        denied = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
        if denied or status(error) in (401, 403) or _BAD_CREDENTIALS.search(str(error)):
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
