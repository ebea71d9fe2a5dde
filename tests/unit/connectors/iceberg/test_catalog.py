"""Tests of the conversion of an Airflow connection to Iceberg catalog properties, and of secrets in messages."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.catalog import CatalogAddress
from airflow_provider_ckpt.core.errors import CkptError, ConfigError


def address(login: str | None = None, password: str | None = None, **extra: Any) -> CatalogAddress:
    """Return the catalog's address from a connection."""
    return CatalogAddress.of(Connection("lake", "generic", login=login, password=password, extra=extra))


@pytest.mark.parametrize(
    ("uri", "login", "password", "whole"),
    [
        ("sqlite:////data/catalog.db", None, None, "sqlite:////data/catalog.db"),
        ("sqlite:////data/catalog.db", "me", "pw", "sqlite:////data/catalog.db"),
        ("postgresql://db:5432/lake", "me", "p/w", "postgresql+psycopg2://me:p%2Fw@db:5432/lake"),
        ("postgresql://me@db/lake", None, "pw", "postgresql+psycopg2://me:pw@db/lake"),
        ("postgresql+psycopg2://me:other@db/lake", "you", "pw", "postgresql+psycopg2://me:other@db/lake"),
        ("postgresql://db/lake", "me", None, "postgresql+psycopg2://me@db/lake"),
    ],
)
def test_login_and_password_go_into_a_database_s_address(
    uri: str, login: str | None, password: str | None, whole: str
) -> None:
    assert address(login, password, uri=uri).properties["uri"] == whole


def test_a_rest_catalog_gets_them_as_its_credential_or_token() -> None:
    assert address("id", "secret", uri="https://rest/").properties["credential"] == "id:secret"
    assert address(None, "bearer", uri="https://rest/").properties["token"] == "bearer"
    assert "token" not in address(uri="https://rest/").properties


def test_the_extra_s_name_is_the_catalog_s_and_everything_else_a_property() -> None:
    found = address(name="prod", type="sql", uri="sqlite://", pool_pre_ping=True, limit=3, nothing=None)

    assert found.name == "prod"
    assert (found.properties["pool_pre_ping"], found.properties["limit"]) == ("true", "3")
    assert "name" not in found.properties
    assert "nothing" not in found.properties
    assert address(type="sql").name == "default"


def test_what_is_nested_stays_so_and_keeps_its_secrets() -> None:
    auth = {"type": "oauth2", "oauth2": {"client_id": "me", "client_secret": "s-9", "token_url": "https://login/"}}
    found = address(type="rest", uri="https://rest/", auth=auth)

    assert found.properties["auth"] == auth
    assert "s-9" not in str(found.error(RuntimeError("no s-9"), "open"))


def test_files_are_written_durably() -> None:
    assert address(type="sql").properties["py-io-impl"].endswith("DurableFileIO")


@pytest.mark.parametrize(
    "extra",
    [
        {"py-io-impl": "os.path.Y"},
        {"py-catalog-impl": "x.Y"},
        {"PY-IO-IMPL": "x.Y"},
        {"write.py-location-provider.impl": "x.Y"},
        {"table-default.write.py-location-provider.impl": "x.Y"},
        {"auth": {"type": "custom", "impl": "x.Y"}},
        {"auth": {"type": "custom"}},
        {"s3.signer": "x.Y"},
        {"plugin": "x"},
    ],
)
def test_no_property_may_name_code_to_load(extra: dict[str, Any]) -> None:
    said = "not accepted in the extra of connection 'lake': a property of the Iceberg library may name code"
    with pytest.raises(ConfigError, match=said) as refused:
        address(**{"type": "rest", "uri": "https://rest/", **extra})
    assert next(iter(extra)) in str(refused.value)


@pytest.mark.parametrize(
    "name", ["s3.endpoint", "s3.access-key-id", "header.X-Tenant", "rest.sigv4-enabled", "gcs.project-id"]
)
def test_plain_properties_pass(name: str) -> None:
    assert address(**{"type": "rest", "uri": "https://rest/", name: "x"}).properties[name] == "x"


def test_no_traceback_shows_the_secret_of_a_catalog_that_cannot_be_opened() -> None:
    found = address("me", "p-w-1", type="sql", uri="postgresql://me:p-w-1@db:not-a-port-p-w-1/lake")

    with pytest.raises(CkptError) as refused:
        found.open()

    assert "p-w-1" not in "".join(traceback.format_exception(refused.value))


def test_no_message_shows_what_is_not_known_to_be_harmless() -> None:
    given = {"header.X-Api": "h-777", "s3.sse.pin": "p-888", "s3.endpoint": "http://store", "echo": "true"}
    text = str(address(**{"type": "sql", **given}).error(RuntimeError("h-777 p-888 http://store true"), "commit"))

    assert "*** *** http://store true" in text


def test_no_message_and_no_text_shows_a_secret() -> None:
    found = address("me", "p/w-1", uri="postgresql://db/lake", **{"s3.secret-access-key": "k-2", "token": "t-3"})

    text = str(found.error(RuntimeError(f"{dict(found.properties)} p/w-1"), "commit"))

    assert not any(secret in text + repr(found) for secret in ("p/w-1", "p%2Fw-1", "k-2", "t-3"))
    assert "cannot commit" in text
