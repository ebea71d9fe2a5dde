"""Check which confluent-kafka settings the extra of an Airflow connection may contain, and refuse all others.

Only settings in the lists of this module are accepted. Any other setting raises an error that names it, since it might
load code, run a command or weaken a delivery guarantee; this includes settings that later versions of librdkafka add.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from airflow_provider_ckpt.core.errors import ConfigError

_CLIENT = """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup client.id
    client.rack connections.max.idle.ms enable.metrics.push enable.sparse.connections message.copy.max.bytes
    message.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    reconnect.backoff.max.ms reconnect.backoff.ms receive.message.max.bytes retry.backoff.max.ms retry.backoff.ms
    max.in.flight max.in.flight.requests.per.connection socket.connection.setup.timeout.ms socket.keepalive.enable
    socket.max.fails socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
"""
_TLS = """
    enable.ssl.certificate.verification https.ca.location https.ca.pem security.protocol
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location
    ssl.curves.list ssl.endpoint.identification.algorithm ssl.key.location ssl.key.password ssl.key.pem
    ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list
"""
_LOGIN = """
    enable.sasl.oauthbearer.unsecure.jwt sasl.mechanism sasl.mechanisms sasl.password sasl.username
    sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url
"""
_TUNING = """
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id max.partition.fetch.bytes queued.max.messages.kbytes queued.min.messages

    batch.num.messages batch.size compression.codec compression.level compression.type delivery.timeout.ms linger.ms
    message.send.max.retries message.timeout.ms partitioner queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms request.timeout.ms retries
    sticky.partitioning.linger.ms transaction.timeout.ms
"""
_IGNORED = """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset consume.callback.max.messages
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof group.instance.id
    group.protocol group.protocol.type group.remote.assignor heartbeat.interval.ms max.poll.interval.ms max.poll.records
    offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy
    session.timeout.ms share.acknowledgement.mode

    check.crcs isolation.level

    delivery.report.only.error produce.offset.report queuing.strategy transactional.id

    debug log.connection.close log.queue log.thread.name log_level statistics.interval.ms

    builtin.features enable.random.seed internal.termination.signal reconnect.backoff.jitter.ms socket.blocking.max.ms
    topic.blacklist topic.metadata.refresh.fast.cnt
"""
"""Settings that are accepted but not passed to the client; the connector sets them itself or does not use them.

Other programs that share the connection may need them, such as consumers of Airflow's Kafka provider, which join a
group and commit offsets. ``isolation.level`` and ``check.crcs`` are among them, since each consumer of this connector
sets them itself."""

_BROKERS_ALIAS = "metadata.broker.list"
"""librdkafka's alias of ``bootstrap.servers``."""

_REQUIRED_VALUES = {
    "acks": {"all", "-1"},
    "request.required.acks": {"all", "-1"},
    "enable.idempotence": {"true"},
    "enable.gapless.guarantee": {"true", "false"},
}
"""Settings that the delivery guarantees require, with the accepted values; the connector's producers set them."""

_PASSED_TO_SHELL = frozenset({"sasl.kerberos.keytab", "sasl.kerberos.principal", "sasl.kerberos.service.name"})
_SHELL_SAFE = re.compile(r"[A-Za-z0-9@._/=+-]+")
"""Characters allowed in the settings that librdkafka passes to a shell as arguments of ``kinit``."""

_PROVIDER_NAMES = re.compile(r"[A-Za-z0-9_-]+(?: *, *[A-Za-z0-9_-]+)*+")
"""Pattern of OpenSSL provider names, separated by commas.

A path is not matched, and so refused, since OpenSSL would load code from it.
"""


def named_brokers(extra: Mapping[str, Any]) -> str:
    """Return the bootstrap servers in a connection's extra, under either name of the setting; empty if none."""
    return str(extra.get("bootstrap.servers") or extra.get(_BROKERS_ALIAS) or "")


def client_settings(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a connection's extra that are passed to the Kafka client.

    Callbacks, settings for other programs, and settings that the connector always sets itself are left out.

    :param extra: the connection's extra
    """
    left_out = {*_IGNORED.split(), *_REQUIRED_VALUES, _BROKERS_ALIAS}
    return {name: value for name, value in extra.items() if not name.endswith("_cb") and name not in left_out}


def refuse_settings(connection: str, extra: Mapping[str, Any], *, writes: bool) -> None:
    """Raise an error if a connection's extra has a setting or a value that is not allowed.

    The error does not quote the value, which may be a secret, unless the delivery guarantees require another value of
    the setting.

    :param connection: the connection's id, for the message
    :param extra: the connection's extra
    :param writes: whether the connection is used for writing; only then are the settings that the delivery guarantees
        require checked
    :raises ConfigError: naming the setting
    """
    for name, value in extra.items() if writes else ():
        if name in _REQUIRED_VALUES and str(value).lower() not in _REQUIRED_VALUES[name]:
            raise ConfigError(
                f"connection {connection!r} sets {name} to {str(value)[:40]!r}, but the delivery guarantees "
                f"require {name}={max(_REQUIRED_VALUES[name])}.",
                hint=f"Remove {name} from the connection's extra.",
            )
    allowed = frozenset(" ".join((_CLIENT, _TLS, _LOGIN, _TUNING)).split())
    for name, value in client_settings(extra).items():
        if name not in allowed:
            near = difflib.get_close_matches(name, sorted(allowed), 1)
            suggestion = f"Did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"connection {connection!r} sets {name[:100]!r}, which is not allowed for a Kafka connection: it is "
                "not a client setting, or it loads code, runs a command, or is set by the connector itself.",
                hint=f"{suggestion}Remove it from the connection's extra; the page on Kafka in the documentation says "
                "which settings are allowed.",
            )
        if name in _PASSED_TO_SHELL and not _SHELL_SAFE.fullmatch(str(value)):
            raise ConfigError(
                f"connection {connection!r} sets {name} to a text with characters that a shell would interpret.",
                hint="Use only letters, digits and @ . _ / = + -",
            )
        if name == "ssl.providers" and not _PROVIDER_NAMES.fullmatch(str(value)):
            raise ConfigError(
                f"connection {connection!r} sets 'ssl.providers' to a value that may be a path of code to load.",
                hint="Name OpenSSL's providers, separated by commas, such as default,legacy.",
            )
