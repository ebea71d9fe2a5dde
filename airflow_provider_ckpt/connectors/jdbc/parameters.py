"""Checks of a JDBC URL and a connection's properties: no parameter may expose a secret, or make a driver load code.

Drivers accept many parameters that name a class, a script or a file to load. For the drivers that are known here, only
the listed parameters pass; for any other driver, those whose names do not suggest code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core.errors import ConfigError

_GIVEN = re.compile(r"([A-Za-z_$][\w.$ -]{0,60}+)=([^;&?,()]*+)")
_SECRET = re.compile(
    r"pass|pwd|secret|token|credential|jaas|signature|\bpin\b|(?:^|[._-])key$|(?:api|private|account)_?key"
)
_CODE = re.compile(
    r"class|factory|interceptor|plugin|listener|serializ|script|init|logger|trace|callback|verifier|jndi|impl|strategy"
    r"|localinfile|multiqueries|transform|handler|provider|library|driver(?!type)|file"
)
_LOGIN = re.compile(r"//[^/@?;(]*:[^/@?;]*@|^jdbc:oracle:\w+:[^@]*/[^@]+@")
_HIDDEN = "***"
_WORDS = frozenset({"true", "false", "require", "prefer", "allow", "disable", "none"})
_SHORTEST = 4
"""Characters of a secret that is looked for wherever it stands; a shorter one would be found in other words."""

_POSTGRESQL = """
    adaptivefetch adaptivefetchmaximum adaptivefetchminimum allowencodingchanges applicationname
    assumeminserverversion autosave binarytransfer binarytransferdisable binarytransferenable cancelsignaltimeout
    channelbinding cleanupsavepoints connecttimeout currentschema databasemetadatacachefields
    databasemetadatacachefieldsmib defaultrowfetchsize disablecolumnsanitiser escapesyntaxcallmode
    groupstartupparameters gssencmode gssresponsetimeout hiddenprivilegedtables hostrecheckseconds
    hideunprivilegedobjects kerberosservername loadbalancehosts localsocketaddress logintimeout logservererrordetail
    logunclosedconnections maxresultbuffer maxsendbuffersize options password preferquerymode
    preparedstatementcachequeries preparedstatementcachesizemib preparethreshold protocolversion
    quotereturningidentifiers querytimeout readonly readonlymode receivebuffersize replication rewritebatchedinserts
    requireauth sendbuffersize sockettimeout ssl sslcert sslkey sslmode sslnegotiation sslpassword
    sslresponsetimeout sslrootcert stringtype targetservertype tcpkeepalive tcpnodelay unknownlength user
"""
_H2 = """
    access_mode_data auto_reconnect autocommit builtin_alias_override cache_size cache_type
    case_insensitive_identifiers cipher database_to_lower database_to_upper db_close_delay db_close_on_exit
    default_lock_timeout default_null_ordering file_lock forbid_creation ifexists ignorecase ignore_catalogs
    keywords lock_mode lock_timeout log_old_behavior mode multi_threaded network_timeout non_keywords
    old_information_schema open_new password password_hash query_timeout retention_time schema time zone throttle
    user write_delay zero_based_enums
"""
_MYSQL = """
    address allowpublickeyretrieval autoreconnect blobsarestrings cachecallablestmts cacheprepstmts
    cacheresultsetmetadata characterencoding characterset clientcertificatekeystorepassword
    clientcertificatekeystoretype clientcertificatekeystoreurl connectionattributes connectioncollation
    connectiontimezone connecttimeout databaseterm defaultfetchsize dontcheckondupekeyupdateinsql
    dontrackopenresources enabledsslciphersuites enabledtlsprotocols fallbacktosystemkeystore
    fallbacktosystemtruststore forceconnectiontimezonetosession host keystore keystorepassword keystoretype
    largerowsizethreshold localsocketaddress maintaintimestats maxallowedpacket maxrows nodatetimestringsync
    nullcatalogmeanscurrent nulldatabasemeanscurrent padcharswithspace password port priority password1 password2
    password3 prepstmtcachesize prepstmtcachesqllimit preserveinstants protocol requiressl rewritebatchedstatements
    senddfractionalseconds sendfractionalseconds servertimezone serversslcert sessionvariables socketkeepalive
    sockettimeout sslca sslmode tcpkeepalive tcpnodelay tcprcvbuf tcpsndbuf timezone tinyint1isbit tlsciphersuites
    tlsversions transformedbitisboolean truststore truststorepassword truststoretype
    trustcertificatekeystorepassword trustcertificatekeystoretype trustcertificatekeystoreurl usebulkstmts
    usecompression usecursorfetch usefractionalseconds useinformationschema uselocalsessionstate
    useoldaliasmetadatabehavior usereadaheadinput useserverprepstmts usessl usestreamlengthsinprepstmts useunicode
    user verifyservercertificate yearisdatetype zerodatetimebehavior
"""
_SQLSERVER = """
    accesstoken applicationintent applicationname authentication authenticationscheme calcbigdecimalprecision
    cancelquerytimeout columnencryptionsetting connectretrycount connectretryinterval database databasename
    datetimeparametertype delayloadingLobs domain encrypt fips gsscredential hostnameincertificate instancename
    integratedsecurity ipaddresspreference lastupdatecount locktimeout logintimeout maxresultbuffer msiclientid
    multisubnetfailover packetsize password port portnumber preparemethod querytimeout realm replication
    responsebuffering selectmethod sendstringparametersasunicode sendtemporaldatatypesasstringforbulkcopy
    sendtimeasdatetime server servercertificate servername serverspn serverpreparedstatementdiscardthreshold
    sockettimeout sslprotocol statementpoolingcachesize transparentnetworkipresolution trustservercertificate
    truststore truststorepassword truststoretype usebulkcopyforbatchinsert usedefaultgsscredential user username
    usefmtonly workstationid xopenstates
"""
_ORACLE = """
    defaultrowprefetch fixedstring includesynonyms internal_logon oracle.jdbc.autocommitspeccompliant
    oracle.jdbc.defaultrowprefetch oracle.jdbc.fanenabled oracle.jdbc.implicitstatementcachesize
    oracle.jdbc.j2ee13compliant oracle.jdbc.readtimeout oracle.jdbc.timezoneasregion oracle.jdbc.usenio
    oracle.net.authentication_services oracle.net.connect_timeout oracle.net.crypto_checksum_client
    oracle.net.crypto_checksum_types_client oracle.net.disableoob oracle.net.encryption_client
    oracle.net.encryption_types_client oracle.net.keepalive oracle.net.networkcompression
    oracle.net.outbound_connect_timeout oracle.net.ssl_cipher_suites oracle.net.ssl_server_cert_dn
    oracle.net.ssl_server_dn_match oracle.net.ssl_version oracle.net.tns_admin oracle.net.wallet_location password
    processescapes remarksreporting user v$session.machine v$session.osuser v$session.process v$session.program
    javax.net.ssl.keystore javax.net.ssl.keystorepassword javax.net.ssl.keystoretype javax.net.ssl.truststore
    javax.net.ssl.truststorepassword javax.net.ssl.truststoretype address address_list connect_data connect_timeout
    description host load_balance failover port protocol retry_count retry_delay security server service_name sid
    ssl_server_cert_dn ssl_server_dn_match transport_connect_timeout
"""
_OF_DRIVERS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.lower().split()) | {"time zone"}
    for name, words in {
        "postgresql": _POSTGRESQL,
        "h2": _H2,
        "mysql": _MYSQL,
        "mariadb": _MYSQL,
        "sqlserver": _SQLSERVER,
        "oracle": _ORACLE,
    }.items()
}
"""By the URL's kind, what a driver may be told."""

_HARMLESS = frozenset(word for words in _OF_DRIVERS.values() for word in words if not _SECRET.search(word)) | {
    "charset", "compression", "database", "db", "port", "role", "schema", "timeout", "user", "username", "warehouse"
}  # fmt: skip
"""Parameters whose values a message may show, of any driver."""


def check(connection: Connection) -> None:
    """Refuse a URL that holds a secret, and parameters by which a driver would load code.

    :raises ConfigError: naming the parameter
    """
    url = connection.host or ""
    in_url = dict(_given(url))
    secret = next((name for name in in_url if _SECRET.search(name.lower())), None)
    if secret is not None or _LOGIN.search(url.lower()):
        raise ConfigError(
            f"the JDBC URL of connection {connection.id!r} holds a password{f' ({secret})' if secret else ''}.",
            hint="Put user and password into the connection's login and password, and other secrets into properties in "
            "its extra: a URL shows up in logs and plans.",
        )
    known = _OF_DRIVERS.get(_kind(url))
    for name in (*in_url, *_properties(connection)):
        form = name.strip().lower()
        if form not in known if known is not None else _CODE.search(form):
            raise ConfigError(
                f"{name} is not accepted for a driver of {_kind(url)} (connection {connection.id!r}): a driver's "
                "parameters may name code to load.",
                hint="Leave it out of the URL and of properties in the connection's extra.",
            )


def without_secrets(connection: Connection, text: str) -> str:
    """A text in which nothing shows that a connection keeps: its password, and all that is not known to be harmless."""
    given = [*_given(connection.host or ""), *_properties(connection).items()]
    hidden = [value for name, value in given if name.strip().lower() not in _HARMLESS]
    words = {value for value in hidden if len(value) >= _SHORTEST and value.lower() not in _WORDS}
    for secret in sorted(words | ({connection.password} if connection.password else set()), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _GIVEN.sub(lambda found: found[0] if _shows(found[1]) else f"{found[1]}={_HIDDEN}", text)


def _shows(name: str) -> bool:
    """Whether what follows a name in a text may be shown: it is no secret by its name."""
    return not _SECRET.search(name.strip().lower())


def _kind(url: str) -> str:
    return url.removeprefix("jdbc:").partition(":")[0].lower()


def _given(url: str) -> Iterator[tuple[str, str]]:
    return ((found[1].strip(), found[2]) for found in _GIVEN.finditer(url))


def _properties(connection: Connection) -> dict[str, str]:
    properties = connection.extra.get("properties")
    return {str(name): str(value) for name, value in properties.items()} if isinstance(properties, Mapping) else {}
