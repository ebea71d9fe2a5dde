"""Tests of the ledger's location, and of its display without secrets."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger.store.database import describe, parse_url


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_postgresql_is_always_reached_by_psycopg2(scheme: str) -> None:
    assert parse_url(f"{scheme}://h/db").drivername == "postgresql+psycopg2"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://robin:sesame@h:5433/db?options=-csearch_path%3Dckpt", "PostgreSQL robin@h:5433/db"),
        ("postgresql://h/db", "PostgreSQL h/db"),
        ("postgresql:///db?password=sesame", "PostgreSQL local socket/db"),
        ("sqlite:////var/ckpt.db", "SQLite file /var/ckpt.db"),
    ],
)
def test_a_place_is_told_without_password_and_options(url: str, place: str) -> None:
    assert describe(parse_url(url)) == place


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://h/db", "postgresql+psycopg://h/db", "x"])
def test_another_kind_of_address_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(ConfigError, match="sqlite:///"):
        parse_url(url)


def test_an_address_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url("postgresql://robin:sesame@h:port/db")
    assert "sesame" not in str(caught.value)
