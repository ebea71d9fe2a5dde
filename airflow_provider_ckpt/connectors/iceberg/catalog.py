"""Open the Iceberg catalog that an Airflow connection names, and convert its errors.

The connection's extra has the catalog's properties as the Iceberg library expects them (``uri``, ``warehouse``,
``type`` and so on), and ``name``, the catalog's name. Secrets may be in the login and password instead.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.storage.filesystem import io_error
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, SinkError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_NAME = "name"
_DEFAULT_NAME = "default"
_DURABLE = {"py-io-impl": "airflow_provider_ckpt.connectors.iceberg.durable.DurableFileIO"}
_ACCEPTED_PROPERTIES = re.compile(
    r"uri|warehouse|type|credential|token|scope|audience|resource|oauth2-server-uri|prefix|auth|ssl|namespace-separator"
    r"|echo|pool_pre_ping|limit|init_catalog_tables|downcast-ns-timestamp-to-us-on-write|token-refresh-enabled"
    r"|snapshot-loading-mode|header\..+|rest\.(?:sigv4-enabled|signing-name|signing-region)|ssl\..+"
    r"|(?:s3|gcs|adls|hdfs|hf|hive|glue|dynamodb|client|bigquery|write|table-default|table-override|gcp)\..+"
)
_SUGGESTS_CODE = re.compile(r"(?i)(?:^|[._-])impl$|class|factory|module|signer(?!\.(?:uri|endpoint))")
_SECRET_WORDS = ("password", "secret", "token", "credential", "key")
_SHOWN_PROPERTIES = re.compile(
    r"uri|warehouse|type|scope|audience|resource|prefix|echo|pool_pre_ping|limit|init_catalog_tables|py-io-impl|client_id"
    r"|oauth2-server-uri|rest\..+|[^.]+\.(?:endpoint|region|connect-timeout|request-timeout|path-style-access)"
)
_MIN_HIDDEN_LENGTH = 4
"""Minimum length of a value that messages hide even if the name of its property does not suggest a secret.

Shorter values are not hidden, since they would also be replaced inside other words of a message.
"""

_PERMISSION_ERRORS = ("UnauthorizedError", "ForbiddenError", "OAuthError", "AuthorizationExpiredError")

_CONFIGURATION_ERRORS = ("ArgumentError", "NoSuchModuleError", "NoSuchPropertyException")


@dataclass(frozen=True, slots=True, repr=False)
class CatalogAddress:
    """Name and properties with which an Iceberg catalog is opened; never printed, since the properties include secrets.

    :param name: name of the catalog
    :param properties: properties for the Iceberg library
    :param secrets: texts that no message may show
    """

    name: str
    properties: Mapping[str, Any]
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, connection: Connection) -> CatalogAddress:
        """Return the address of the catalog that an Airflow connection describes.

        :param connection: the Airflow connection
        :raises ConfigError: if the connection's extra has neither ``uri`` nor ``type``, or a property that is unknown
            or with which the library could load code
        """
        extra = {str(key): _plain_value(value) for key, value in connection.extra.items() if value is not None}
        name = str(extra.pop(_NAME, _DEFAULT_NAME))
        _refuse_code(connection.id, extra)
        if "uri" not in extra and "type" not in extra:
            raise ConfigError(
                f"the connection {connection.id!r} names no Iceberg catalog.",
                hint='Put its properties into the extra, such as {"type": "sql", "uri": …, "warehouse": …}.',
            )
        properties: dict[str, Any] = {**_DURABLE, **extra}
        if "uri" in extra:
            properties |= _with_login(str(extra["uri"]), connection)
        secrets = list(_secrets_in(properties))
        written = _password_in(str(properties.get("uri", "")))
        secrets += [connection.password or "", written, unquote(written)]
        return cls(name, properties, tuple(sorted({secret for secret in secrets if secret}, key=len, reverse=True)))

    def open(self) -> Catalog:
        """Connect to the catalog and return the Iceberg library's object for it.

        :raises SinkError: if the catalog cannot be reached
        :raises IoError: if a file of the catalog cannot be read
        :raises ConfigError: if the catalog's properties are not valid
        """
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(self.name, **self.properties)
        except ModuleNotFoundError as error:
            raise self._refused(
                error, "Install the Python package that this type of catalog needs."
            ) from None  # the cause may contain a secret, here and below
        except library_errors() as error:
            if isinstance(error, ValueError) or type(error).__name__ in _CONFIGURATION_ERRORS:
                raise self._refused(error, "Correct the extra of the catalog's connection.") from None
            raise self.error(error, f"open the Iceberg catalog {self.name!r}") from None

    def error(self, error: Exception, operation: str) -> CkptError:
        """Convert an error of the Iceberg library or its dependencies to one of this package, without any secrets.

        :param error: the library's error
        :param operation: description of the failed operation, as in ``open the Iceberg table db.t``
        :return: an :class:`IoError` for an error of the operating system, else a :class:`SinkError`; the caller raises
            it
        """
        if isinstance(error, OSError) and error.errno is not None:
            return io_error(error, operation)
        message = f"cannot {operation}: {self._plain(error)}."
        if type(error).__name__ in _PERMISSION_ERRORS:
            return SinkError(
                message, is_outage=True, hint="Correct the connection's credentials, or grant them access."
            )
        if isinstance(error, ValueError | NotImplementedError):
            return SinkError(message)
        return SinkError(message, recoverable=True, is_outage=True)

    def _refused(self, error: Exception, hint: str) -> ConfigError:
        return ConfigError(f"the Iceberg catalog {self.name!r} cannot be opened: {self._plain(error)}.", hint=hint)

    def _plain(self, error: Exception) -> str:
        text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def library_errors() -> tuple[type[Exception], ...]:
    """Return all exception classes that calls of the Iceberg library may raise, including those of its dependencies.

    The library's SQL catalog is built on SQLAlchemy. Its errors are only included if SQLAlchemy has been imported
    already, since it cannot raise any otherwise.
    """
    from pyiceberg import exceptions

    own = [kind for kind in vars(exceptions).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    below = sys.modules.get("sqlalchemy.exc")
    return (*own, OSError, ValueError, NotImplementedError, *([below.SQLAlchemyError] if below is not None else []))


def _plain_value(value: Any) -> Any:
    """Convert a number or boolean to text, as the Iceberg library expects properties; return other values unchanged.

    An example of another value is the mapping ``auth`` of a REST catalog.

    :param value: value of a property
    """
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _refuse_code(connection: str, properties: Mapping[str, Any], within: str = "") -> None:
    """Raise an error for a property with which the Iceberg library could load code, or that is unknown.

    :param connection: id of the connection, for the message
    :param properties: names and values of the properties
    :param within: name of the enclosing property with a dot, such as ``auth.``; empty at the top level
    :raises ConfigError: naming the refused property
    """
    for name, value in properties.items():
        if (
            (not within and not _ACCEPTED_PROPERTIES.fullmatch(name))
            or _SUGGESTS_CODE.search(name)
            or (within and value == "custom")
        ):
            raise ConfigError(
                f"{within}{name} is not accepted in the extra of connection {connection!r}: a property of the Iceberg "
                "library may name code to load.",
                hint="Leave it out; this package writes files by its own durable writer, whatever the property says.",
            )
        if isinstance(value, Mapping):
            _refuse_code(connection, value, f"{within}{name}.")


def _secrets_in(properties: Mapping[str, Any]) -> Iterator[str]:
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets_in(value)
        elif any(word in key.lower() for word in _SECRET_WORDS) or _may_be_secret(key, str(value)):
            yield str(value)


def _may_be_secret(key: str, value: str) -> bool:
    """Return whether messages must hide a property's value, although its name does not suggest a secret.

    True unless the property is known to be harmless, or the value is a boolean or shorter than 4 characters.

    :param key: name of the property
    :param value: value of the property
    """
    return not _SHOWN_PROPERTIES.fullmatch(key) and len(value) >= _MIN_HIDDEN_LENGTH and value not in ("true", "false")


def _with_login(uri: str, connection: Connection) -> dict[str, str]:
    """Return the properties that pass the login and password of an Airflow connection to the catalog.

    A REST catalog (``http``, ``https``) gets them as ``credential`` or ``token``; any other gets them in its ``uri``.

    :param uri: the catalog's ``uri``
    :param connection: connection with login and password
    :return: properties that are added to those of the connection's extra, or replace them
    """
    scheme, separator, rest = uri.partition("://")
    password = quote(connection.password or "", safe="")
    if scheme in ("http", "https"):
        if not connection.password:
            return {}
        login = f"{connection.login}:" if connection.login else ""
        return {"credential" if login else "token": login + connection.password}
    if scheme in ("postgres", "postgresql"):
        scheme = "postgresql+psycopg2"
    authority, slash, path = rest.partition("/")
    user, _, host = authority.rpartition("@")
    user = user or quote(connection.login or "", safe="")
    if user and ":" not in user and password:
        user += f":{password}"
    authority = f"{user}@{host}" if user and host else authority
    return {"uri": f"{scheme}{separator}{authority}{slash}{path}"}


def _password_in(uri: str) -> str:
    authority = uri.partition("://")[2].partition("/")[0]
    return authority.rpartition("@")[0].partition(":")[2]
