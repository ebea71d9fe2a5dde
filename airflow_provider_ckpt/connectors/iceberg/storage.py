"""Find the location of an Iceberg table's files: a local path, or an object store that catalog properties open."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_ckpt.connectors.storage.credentials import StoreOptions
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.storage.open_location import open_url
from airflow_provider_ckpt.connectors.storage.schemes import is_object_url
from airflow_provider_ckpt.core.errors import ConfigError

_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
    "s3.force-virtual-addressing": "aws_virtual_hosted_style_request",
    "gcs.oauth2.token": "google_bearer_token",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_key",
    "adls.tenant-id": "azure_storage_tenant_id",
    "adls.client-id": "azure_storage_client_id",
    "adls.client-secret": "azure_storage_client_secret",
}
"""Names of properties of the Iceberg library, each with the name that the object store's client has for the option."""

_ENDPOINTS = ("aws_endpoint", "azure_endpoint")
_REGION = "us-east-1"
"""Region with which requests are signed if the properties name an endpoint, but no region."""


def to_location(uri: str, name: str, properties: Mapping[str, Any]) -> Location:
    """Return the location of an Iceberg table's directory or file.

    :param uri: path or URL in the table's metadata
    :param name: name of the table, for messages
    :param properties: properties with which the Iceberg library opens the table's files
    :raises ConfigError: if the table is in a store that is not supported
    """
    if is_object_url(uri):
        return open_url(uri, name, _options(properties))
    scheme = urlsplit(uri).scheme or "file"
    if scheme != "file":
        raise ConfigError(
            f"{name} is at {uri}; {scheme}:// locations are not supported.",
            hint="Use a warehouse in a directory that every lane can reach, or in an object store: s3://, gs://, abfss://.",
        )
    return LocalLocation(Path("/")).resolve(uri)


def _options(properties: Mapping[str, Any]) -> StoreOptions:
    options = {theirs: str(properties[own]) for own, theirs in _OPTIONS.items() if properties.get(own)}
    if "aws_endpoint" in options:
        options.setdefault("aws_region", _REGION)
    if authority := str(properties.get("adls.blob-storage-authority") or ""):
        options["azure_endpoint"] = _azure_endpoint(authority, properties)
    if any(options.get(name, "").startswith("http://") for name in _ENDPOINTS):
        options["allow_http"] = "true"
    return StoreOptions.of(options)


def _azure_endpoint(authority: str, properties: Mapping[str, Any]) -> str:
    """Return the URL of an Azure storage account.

    :param authority: host of the blob service; if it begins with a dot, the account's name is put before it, as in
        ``.blob.core.windows.net``; otherwise the account is the first part of the path
    :param properties: properties with which the Iceberg library opens the table's files
    """
    scheme, account = properties.get("adls.blob-storage-scheme") or "https", properties.get("adls.account-name") or ""
    return f"{scheme}://{account}{authority}" if authority.startswith(".") else f"{scheme}://{authority}/{account}"
