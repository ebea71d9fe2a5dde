"""Convert an Airflow connection of an object store to the options of the client library.

Without a connection, the library takes credentials from the environment or from the machine's role. A given connection
must be complete: credentials of a connection are never combined with credentials from the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import ConfigError

_DEFAULT_REGION = "us-east-1"
"""Region with which requests are signed if the connection names an endpoint of its own, but no region."""

_ACCOUNT = "azure_storage_account_name"
_REFUSED = {
    "aws": ("role_arn", "assume_role_method", "profile_name", "session_kwargs", "external_id"),
    "google_cloud_platform": ("impersonation_chain", "credential_config_file", "key_secret_name", "is_anonymous"),
    "wasb": ("managed_identity_client_id", "workload_identity_tenant_id"),
    "adls": ("managed_identity_client_id", "workload_identity_tenant_id"),
}
"""Keys of a connection's extra, by its type, that are not supported: they select another identity than its own keys."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options with which an object store is opened.

    :param options: options by the names that the client library and the Delta library share, including secrets
    :param secrets: texts that no message may show
    """

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StoreOptions:
        """Return options for an object store; those whose names suggest a secret are hidden in messages.

        :param options: options by the names of the client library
        """
        secrets = {value for name, value in options.items() if _is_secret(name)}
        return cls(options, tuple(sorted(secrets, key=len, reverse=True)))

    @property
    def place(self) -> Mapping[str, str]:
        """The options that identify the store: the endpoint, and for Azure the storage account."""
        return {name: value for name, value in self.options.items() if name.endswith("_endpoint") or name == _ACCOUNT}

    def with_account(self, host: str, key: str) -> StoreOptions:
        """Return these options with the storage account that an ``abfss://`` URL names.

        :param host: the account's address, such as ``account.dfs.core.windows.net``
        :param key: key of the pipeline's declaration that has the URL, for the message
        :raises ConfigError: if the connection names another account
        """
        account = host.partition(".")[0]
        known = self.options.get(_ACCOUNT, account)
        if known != account:
            raise ConfigError(
                f"{key} names the storage account {account}, and its connection the account {known}.",
                hint="Correct one of them.",
            )
        return StoreOptions({**self.options, _ACCOUNT: account}, self.secrets)


def store_options(connection: Connection | None, scheme: str, key: str) -> StoreOptions:
    """Return the options for an object store, taken from an Airflow connection.

    :param connection: the Airflow connection with the store's credentials; None for those of the environment
    :param scheme: kind of store: ``s3``, ``gs`` or ``az``
    :param key: key of the pipeline's declaration that names the connection, for messages
    :raises ConfigError: if the connection has the wrong type, a setting that is not supported or is malformed, or if
        the environment would add a session token to its access key
    """
    if connection is None:
        return StoreOptions()
    types, convert = _CONVERTERS[scheme]
    if connection.type not in types:
        raise ConfigError(
            f"connection {connection.id!r} of {key} has type {connection.type!r}, and a location {scheme}:// needs one "
            f"of type {' or '.join(types)}.",
            hint="Name another connection, or none, to use the credentials of the environment.",
        )
    refused = [name for name in _REFUSED[connection.type] if connection.extra.get(name)]
    if refused:
        raise ConfigError(
            f"connection {connection.id!r} of {key} has the extra {', '.join(refused)}, which is not supported.",
            hint="Give the connection keys of its own, or name no connection and let the environment or the machine's "
            "role supply the credentials.",
        )
    options = {name: str(value) for name, value in convert(connection).items() if value not in (None, "")}
    return StoreOptions.of(options)


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("secret", "token", "key", "sas")) and name != "aws_access_key_id"


def _aws(connection: Connection) -> dict[str, Any]:
    extra = connection.extra
    of_s3 = _mapping(_mapping(extra.get("service_config")).get("s3"))
    endpoint = of_s3.get("endpoint_url") or extra.get("endpoint_url") or extra.get("host")
    key, secret = connection.login or extra.get("aws_access_key_id"), connection.password
    secret = secret or extra.get("aws_secret_access_key")
    token = extra.get("aws_session_token")
    if key and not token and os.environ.get("AWS_SESSION_TOKEN"):
        raise ConfigError(
            f"connection {connection.id!r} has an access key without a session token, but the environment variable "
            "AWS_SESSION_TOKEN is set, which the client would send with that key.",
            hint="Remove AWS_SESSION_TOKEN from the environment of the task.",
        )
    style = _mapping(_mapping(extra.get("config_kwargs")).get("s3")).get("addressing_style")
    return {
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "aws_session_token": token,
        "aws_region": extra.get("region_name") or (_DEFAULT_REGION if endpoint else None),
        "aws_endpoint": endpoint,
        "aws_virtual_hosted_style_request": "true" if style == "virtual" else None,
        "allow_http": "true" if str(endpoint or "").startswith("http://") else None,
    }


def _google(connection: Connection) -> dict[str, Any]:
    extra = connection.extra
    document = extra.get("keyfile_dict")
    if isinstance(document, str) and document:
        try:
            document = json.loads(document)
        except ValueError:
            raise ConfigError(
                f"the extra keyfile_dict of connection {connection.id!r} is not JSON.", hint="Correct the connection."
            ) from None
    base = _mapping(document).get("gcs_base_url", "")
    return {
        "google_service_account": extra.get("key_path"),
        "google_service_account_key": json.dumps(document) if document else None,
        "allow_http": "true" if str(base).startswith("http://") else None,
    }


def _azure(connection: Connection) -> dict[str, Any]:
    extra = connection.extra
    stated = _connection_string(str(extra.get("connection_string") or ""))
    host = stated.get("BlobEndpoint") or connection.host or ""
    endpoint = host if host.startswith(("http://", "https://")) else None
    tenant = extra.get("tenant_id")
    account = stated.get("AccountName") or extra.get("account_name") or (None if tenant else connection.login)
    return {
        _ACCOUNT: account or _account_of(host),
        "azure_storage_account_key": stated.get("AccountKey") or (None if tenant else connection.password),
        "azure_storage_sas_key": extra.get("sas_token") or stated.get("SharedAccessSignature"),
        "azure_storage_tenant_id": tenant,
        "azure_storage_client_id": connection.login if tenant else None,
        "azure_storage_client_secret": connection.password if tenant else None,
        "azure_storage_endpoint": endpoint,
        "allow_http": "true" if host.startswith("http://") else None,
    }


_CONVERTERS: Mapping[str, tuple[tuple[str, ...], Callable[[Connection], dict[str, Any]]]] = {
    "s3": (("aws",), _aws),
    "gs": (("google_cloud_platform",), _google),
    "az": (("wasb", "adls"), _azure),
}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _connection_string(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(";") if part)
    return {name: value for name, _, value in pairs}


def _account_of(host: str) -> str | None:
    """Return the storage account in an address such as ``account.blob.core.windows.net``; None for other addresses.

    :param host: host name, or URL
    """
    address = host.partition("://")[2] or host
    account, _, domain = address.partition(".")
    return account if domain.startswith(("blob.", "dfs.")) else None
