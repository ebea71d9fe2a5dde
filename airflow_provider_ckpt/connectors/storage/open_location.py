"""Find the location, in a file system or an object store, that a path or URL in a pipeline names."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.storage.bucket import Bucket
from airflow_provider_ckpt.connectors.storage.credentials import StoreOptions, store_options
from airflow_provider_ckpt.connectors.storage.filesystem import local_path
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from airflow_provider_ckpt.connectors.storage.schemes import SCHEMES, is_object_url
from airflow_provider_ckpt.core.errors import ConfigError

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")


def open_location(text: str, key: str, connection: Connection | None = None) -> Location:
    """Return the location that a path or URL names; nothing is requested from an object store yet.

    :param text: path, ``file://`` URL, or URL of an object store: ``s3://bucket/prefix``, ``gs://bucket/prefix``,
        ``az://container/prefix`` or ``abfss://container@account.dfs.core.windows.net/prefix``
    :param key: key of the pipeline's declaration that has the path or URL, for messages
    :param connection: the object store's connection; for a relative path, a connection of type ``fs`` with its base
    :raises ConfigError: if the path or URL cannot be used, or the connection does not fit it
    """
    if not is_object_url(text):
        if "://" in text and not text.startswith("file://"):
            raise ConfigError(
                f"{key}: {text.partition('://')[0]}:// locations are not supported.",
                hint="Use a path that every Spark executor can reach, or an object store: s3://, gs://, az://, abfss://.",
            )
        return LocalLocation(local_path(text, key, connection))
    return open_url(text, key, store_options(connection, SCHEMES[urlsplit(text).scheme], key))


def open_url(text: str, key: str, options: StoreOptions) -> ObjectLocation:
    """Return the location that the URL of an object store names; nothing is requested from the store yet.

    :param text: the URL
    :param key: key of the pipeline's declaration that has the URL, or the name of a table that is there, for messages
    :param options: credentials and endpoint of the store
    :raises ConfigError: if the URL cannot be used
    """
    url = urlsplit(text)
    scheme = SCHEMES[url.scheme]
    container, _, account = url.netloc.rpartition("@") if "@" in url.netloc else (url.netloc, "", "")
    path = text.partition("://")[2].partition("/")[2]
    parts = path.strip("/").split("/")
    unusable = not _BUCKET.fullmatch(container) or not all(parts) or {".", ".."} & set(parts)
    unusable = unusable or not path.isprintable() or set("%?#\\") & set(path)
    if unusable:
        raise ConfigError(
            f"{key}: {text[:200]!a} is not a usable URL: it needs a bucket, and a prefix without empty parts and "
            "without the characters %, ? and #.",
            hint=f"Write {key} as in {scheme}://bucket/some/prefix.",
        )
    if account:
        options = options.with_account(account, key)
    return ObjectLocation(Bucket(scheme, container, options), "/".join(parts))
