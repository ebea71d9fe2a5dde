"""Check a JDBC URL and a connection's properties: no parameter may expose a secret, or make a driver load code.

Drivers have many parameters that name a class, a script or a file to load. For the drivers listed here, only parameters
that are known to be harmless are accepted, and dangerous switches only if they are off. For any other driver, a
parameter is accepted unless its name suggests code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import ConfigError

_PARAMETER = re.compile(r"([A-Za-z_$][\w.$ -]{0,60}+)=([^;&?,()]*+)")
"""Pattern of a parameter ``name=value`` in any text, such as an error message."""
_NAME = r"([^;&?,()=/:@]{1,500}+)="
_IN_URL = re.compile(_NAME + r"([^;&?,()]*+)")
_WITH_COMMAS = re.compile(_NAME + r"([^;&?()]*+)")
"""Pattern of a parameter in a URL whose value may contain commas; with :data:`_IN_URL`, a comma ends the value."""
_QUERY_WITH_COMMAS = frozenset({"postgresql", "mysql", "mariadb"})
"""Kinds of URL (the word after ``jdbc:``) that separate the parameters after the question mark only by ``&``.

So their values may contain commas.
"""
_SECRET = re.compile(
    r"pass|pwd|secret|token|credential|jaas|signature|\bpin\b|(?:^|[._-])key$|(?:api|private|account)_?key"
)
_NO_SECRETS = frozenset({"disconnectonexpiredpasswords", "password_auth", "passwordcharacterencoding", "token_auth"})
_CODE = re.compile(
    r"class|factory|interceptor|plugin|listener|serializ|script|init|logger|trace|callback|verifier|jndi|impl|strategy"
    r"|localinfile|multiqueries|transform|handler|provider|library|driver(?!type)|file"
)
_LOGIN = re.compile(r"//[^/@?;(]*:[^/@?;]*@|^jdbc:oracle:\w+:[^@]*/[^@]+@")
_HIDDEN = "***"
_WORDS = frozenset({"true", "false", "require", "prefer", "allow", "disable", "none"})
_MIN_HIDDEN_LENGTH = 4
"""Minimum length of a parameter's value that messages hide wherever it occurs.

A shorter value would match parts of other words, so it is hidden only after its parameter's name, if that suggests a
secret.
"""

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

    gsslib pgdbname pghost pgport usespnego
"""
_H2 = """
    access_mode_data auto_reconnect autocommit builtin_alias_override cache_size cache_type
    case_insensitive_identifiers cipher database_to_lower database_to_upper db_close_delay db_close_on_exit
    default_lock_timeout default_null_ordering file_lock forbid_creation ifexists ignorecase ignore_catalogs
    keywords lock_mode lock_timeout log_old_behavior mode multi_threaded network_timeout non_keywords
    old_information_schema open_new password password_hash query_timeout retention_time schema time zone throttle
    user write_delay zero_based_enums

    allow_literals analyze_auto analyze_sample auto_compact_fill_rate auto_server_port catalog collation compress
    default_escape default_table_type drop_restrict ignore_unknown_settings lazy_query_execution lob_timeout
    max_compact_time max_length_inplace_lob max_memory_rows max_operation_memory max_query_timeout mv_store no_upgrade
    optimize_reuse_results page_size query_cache_size query_statistics query_statistics_max_entries readonly
    referential_integrity reuse_space schema_search_path time_zone truncate_large_length variable_binary
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

    allowmasterdownconnections allownanandinf allowreplicadownconnections allowslavedownconnections
    allowsourcedownconnections alwayssendsetisolation autoclosepstmtstreams autoreconnectforpools blobsendchunksize
    cachedefaulttimezone cacheserverconfiguration callablestmtcachesize capitalizetypenames charactersetresults
    clobberstreamingresults clobcharacterencoding compensateonduplicatekeyupdatecounts continuebatchonerror
    createdatabaseifnotexist dbname detectcustomcollations disconnectonexpiredpasswords dnssrv elidesetautocommits
    emptystringsconverttozero emulatelocators emulateunsupportedpstmts enableescapeprocessing enablequerytimeouts
    failoverreadonly functionsneverreturnblobs generatesimpleparametermetadata getproceduresreturnsfunctions
    holdresultsopenoverstatementclose ignorenontxtables initialtimeout interactiveclient jdbccomplianttruncation
    loadbalanceautocommitstatementregex loadbalanceautocommitstatementthreshold loadbalanceblacklisttimeout
    loadbalanceblocklisttimeout loadbalanceconnectiongroup loadbalancehostremovalgraceperiod loadbalancepingtimeout
    loadbalancesqlstatefailover loadbalancevalidateconnectiononswapserver locatorfetchbuffersize maxquerysizetolog
    maxreconnects metadatacachesize nettimeoutforstreamingresults noaccesstoprocedurebodies
    notimezoneconversionfordatetype notimezoneconversionfortimetype overridesupportsintegrityenhancementfacility
    packetdebugbuffersize paranoid passwordcharacterencoding pedantic pinglobaltxtophysicalconnection
    populateinsertrowwithdefaultvalues processescapecodesforprepstmts queriesbeforeretrymaster
    queriesbeforeretrysource querytimeoutkillsconnection readfrommasterwhennoslaves readfromsourcewhennoreplicas
    readonlypropagatestoserver reconnectattxend relaxautocommit replicationconnectiongroup resultsetsizethreshold
    retainstatementafterresultsetclose retriesalldown rollbackonpooledclose roundrobinloadbalance
    scrolltolerantforwardonly secondsbeforeretrymaster secondsbeforeretrysource sendfractionalsecondsfortime
    serveraffinityorder slowquerythresholdmillis slowquerythresholdnanos socksproxyhost socksproxyport
    socksproxyremotedns strictupdates tcptrafficclass tracksessionstate treatutildateastimestamp type useaffectedrows
    usecolumnnamesinfindcolumn usedirectrowunpack usedynamiccharsetinfo usefastdateparsing usefastintparsing
    usegmtmillisfordatetimes usehostsinprivileges usejdbccomplianttimezoneshift uselegacydatetimecode
    uselocaltransactionstate usenanosforelapsedtime useoldutf8behavior useonlyservererrormessages usesqlstatecodes
    usesspscompatibletimezoneshift usetimezone useunbufferedinput
"""
_MARIADB = """
    allowmasterdownconnection assurereadonly autocommit blanktablenamemeta connectioncollation database
    defaultfetchsize disablepipeline disablesslhostnameverification enabledsslciphersuites enabledsslprotocolsuites
    failonreadonly failoverloopretries galeraallowedstate geometrydefaulttype keypassword localsocket maxidletime
    maxpoolsize minpoolsize nulldatabasemeanscurrent permitmysqlscheme permitredirect pool poolname poolvalidmindelay
    preparestmtcachesize registerjmxpool restrictedauth returnmultivaluesgeneratedids serviceprincipalname
    tcpabortiveclose tcpkeepcount tcpkeepidle tcpkeepinterval transactionisolation transactionreplay
    transactionreplaysize trustservercertificate usebatchmultisend usebatchmultisendnumber usebulkstmtsforinserts
    usecatalogterm usemysqlmetadata usepipelineauth useresetconnection uuidasstring validconnectiontimeout
"""
"""Parameters that MariaDB's driver accepts in addition to MySQL's."""
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

    aadsecureprincipalid aadsecureprincipalsecret allowencryptedvaluemodifications
    bulkcopyforbatchinsertallowencryptedvaluemodifications bulkcopyforbatchinsertbatchsize
    bulkcopyforbatchinsertcheckconstraints bulkcopyforbatchinsertfiretriggers bulkcopyforbatchinsertkeepidentity
    bulkcopyforbatchinsertkeepnulls bulkcopyforbatchinserttablelock cachebulkcopymetadata clientcertificate clientkey
    clientkeypassword concatnullyieldsnull disablestatementpooling enableprepareonfirstpreparedstatementcall
    enclaveattestationprotocol enclaveattestationurl failoverpartner keystoreauthentication keystorelocation
    keystoreprincipalid keystoresecret keyvaultproviderclientid quotedidentifier
    servernameasace servertimezone
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

    enable expire_time https_proxy https_proxy_port instance_name my_wallet_directory
    oracle.jdbc.logintimeout oracle.jdbc.maxcachedbuffersize
    oracle.jdbc.usefetchsizewithlongcolumn oracle.jdbc.v8compatible
    oracle.net.https_proxy_host oracle.net.https_proxy_port pool_connection_class pool_purity recv_buf_size sdu
    send_buf_size source_route ssl_version tns_admin token_auth use_sni wallet_location
"""
_FORBIDDEN_IN_DESCRIPTOR = frozenset({"argv0", "args", "envs", "ifile"})
"""Names in an Oracle connect descriptor (``(ADDRESS=…)``) that may not be used: they run a program or read a file."""
_ACCEPTED_PARAMETERS: Mapping[str, frozenset[str]] = {
    name: frozenset(words.lower().split()) | {"time zone"}
    for name, words in {
        "postgresql": _POSTGRESQL,
        "h2": _H2,
        "mysql": _MYSQL,
        "mariadb": f"{_MYSQL} {_MARIADB}",
        "sqlserver": _SQLSERVER,
        "oracle": _ORACLE,
    }.items()
}
"""Accepted parameters, in lower case, by the kind of the URL: the word after ``jdbc:``."""

_SWITCHES = """
    allowloadlocalinfile allowlocalinfile allowmultiqueries allowurlinlocalinfile autodeserialize
    autogeneratetestcasescript auto_server autoslowlog dumpqueriesonexception enablepacketdebug explainslowqueries
    gatherperfmetrics includeinnodbstatusindeadlockexceptions includethreaddumpindeadlockexceptions
    includethreadnamesasstatementcomment loggerlevel logslowqueries logxacommands profilesql trace_level_file
    trace_level_system_out traceprotocol ultradevhack useusageadvisor
"""
_OFF = frozenset({"false", "0", "off", "no"})
"""Values that turn a switch off; a dangerous switch, such as ``allowLoadLocalInfile``, is accepted only with these."""

_HARMLESS = frozenset(word for words in _ACCEPTED_PARAMETERS.values() for word in words if not _SECRET.search(word)) | {
    "charset", "compression", "database", "db", "port", "role", "schema", "timeout", "user", "username", "warehouse"
}  # fmt: skip
"""Parameters, of any driver, whose values a message may show."""


def check(connection: Connection) -> None:
    """Refuse a connection whose URL includes a secret, or whose parameters could make a driver load code.

    :param connection: the connection; parameters are in its URL and in ``properties`` of its extra
    :raises ConfigError: naming the parameter
    """
    url = connection.host or ""
    secret = next((name for name, _, _ in _parameters(url) if _includes_secret(name)), None)
    if secret is not None or _LOGIN.search(url.lower()):
        raise ConfigError(
            f"the JDBC URL of connection {connection.id!r} includes a password"
            f"{f' ({_printable(secret)})' if secret else ''}.",
            hint="Put user and password into the connection's login and password, and other secrets into properties in "
            "its extra: a URL shows up in logs and plans.",
        )
    given = [*_parameters(url), *((name, value, False) for name, value in _properties(connection).items())]
    for name, value, in_descriptor in given:
        if not _accepted(_kind(url), name.strip().lower(), value.strip().lower(), in_descriptor=in_descriptor):
            raise ConfigError(
                f"{_printable(name)} is not accepted for a driver of {_kind(url)} (connection {connection.id!r}): a "
                "driver's parameters may name code to load.",
                hint="Leave it out of the URL and of properties in the connection's extra.",
            )


def _accepted(kind: str, name: str, value: str, *, in_descriptor: bool) -> bool:
    """Return whether a parameter may be passed to a driver.

    :param kind: kind of the URL: the word after ``jdbc:``, such as ``oracle``
    :param name: name of the parameter, in lower case
    :param value: value of the parameter, in lower case
    :param in_descriptor: whether the parameter is in an Oracle connect descriptor, as in ``(ADDRESS=(HOST=db))``,
        instead of one of the driver
    """
    if name in _SWITCHES.split() and value in _OFF:
        return True
    if in_descriptor:
        return name not in _FORBIDDEN_IN_DESCRIPTOR and (name, value) != ("protocol", "beq")
    known = _ACCEPTED_PARAMETERS.get(kind)
    return not _CODE.search(name) if known is None else name in known


def without_secrets(connection: Connection, text: str) -> str:
    """Return a text in which ``***`` replaces the secrets of a connection.

    The secrets are the connection's password, and the values of all its parameters that are not known to be harmless,
    except for very short values and words such as ``true``. The value of any other parameter in the text is replaced,
    too, if the parameter's name suggests a secret.

    :param connection: the connection
    :param text: any text, such as a driver's error message
    """
    in_url = [(name, value) for name, value, _ in _parameters(connection.host or "")]
    given = [*in_url, *_properties(connection).items()]
    hidden = [value for name, value in given if name.strip().lower() not in _HARMLESS]
    words = {value for value in hidden if len(value) >= _MIN_HIDDEN_LENGTH and value.lower() not in _WORDS}
    for secret in sorted(words | ({connection.password} if connection.password else set()), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return _PARAMETER.sub(lambda found: found[0] if _may_be_shown(found[1]) else f"{found[1]}={_HIDDEN}", text)


def _may_be_shown(name: str) -> bool:
    """Return whether a message may show the value of a parameter, since its name does not suggest a secret."""
    return not _SECRET.search(name.strip().lower())


def _includes_secret(name: str) -> bool:
    return name.lower() not in _NO_SECRETS and not _may_be_shown(name)


def _printable(name: str) -> str:
    """Return a parameter's name for an error message, shortened and with unprintable characters escaped."""
    return name[:60] if name.isprintable() else ascii(name[:60])


def _kind(url: str) -> str:
    return url.removeprefix("jdbc:").partition(":")[0].partition("+")[0].lower()


def _parameters(url: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the parameters of a URL: decoded name, value, and whether it is in an Oracle connect descriptor.

    :param url: the JDBC URL
    """
    kind = _kind(url)
    head, separator, query = url.partition("?") if kind in _QUERY_WITH_COMMAS else (url, "", "")
    parts = ((head, _WITH_COMMAS if kind == "oracle" else _IN_URL), (separator + query, _WITH_COMMAS))
    for part, pattern in parts:
        for found in pattern.finditer(part):
            in_descriptor = kind == "oracle" and part[: found.start()].endswith("(")
            yield unquote(found[1]).strip(), found[2], in_descriptor


def _properties(connection: Connection) -> dict[str, str]:
    properties = connection.extra.get("properties")
    return {str(name): str(value) for name, value in properties.items()} if isinstance(properties, Mapping) else {}
