"""A Kafka client is configured by its connection, whose secrets it keeps; its error types follow Kafka's codes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, record_error
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    answer_timeout,
    bootstrap_servers,
    client_config,
    consumer_config,
    create_client,
    error_codes,
    from_kafka_exception,
    require_connection,
    to_error_info,
)
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import (
    ConfigError,
    ErrorAction,
    ErrorInfo,
    ErrorType,
    FencedError,
    KafkaConsumerError,
)

SASL = {
    "bootstrap.servers": "broker:9093",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "ssl.ca.location": "/ca.pem",
}


def connection(**extra: Any) -> Connection:
    """A Kafka connection with this extra."""
    return Connection("stream", "kafka", extra=extra)


class TestConfiguration:
    def test_the_extra_is_passed_through_and_what_the_connector_needs_wins(self) -> None:
        config = client_config(
            connection(**SASL, **{"isolation.level": "read_uncommitted"}), "me", {"isolation.level": "read_committed"}
        )

        assert config.items() >= SASL.items()
        assert (config["client.id"], config["isolation.level"]) == ("me", "read_committed")

    def test_host_and_login_stand_in_where_the_extra_names_neither(self) -> None:
        plain = Connection("s", "kafka", "broker", 9094, "ann", "secret", extra={"security.protocol": "sasl_ssl"})

        config = client_config(plain, "me")

        assert bootstrap_servers(plain) == config["bootstrap.servers"] == "broker:9094"
        assert (config["sasl.username"], config["sasl.password"]) == ("ann", "secret")

    def test_a_login_is_not_sent_where_nobody_asks_for_one(self) -> None:
        assert "sasl.password" not in client_config(Connection("s", "kafka", "b", 1, "ann", "secret"), "me")

    def test_callbacks_of_other_programs_are_left_out(self) -> None:
        assert "error_cb" not in client_config(connection(**SASL, error_cb="my.module.tell"), "me")

    @pytest.mark.parametrize(
        "setting",
        [
            "plugin.library.paths",
            "sasl.kerberos.kinit.cmd",
            "ssl.engine.location",
            "ssl_engine_callback_data",
            "ssl.providers",
            "interceptor.classes",
            "sasl.jaas.config",
            "sasl.passwort",
            "on_commit",
            "open_cb_data",
            "ssl.engine.id",
            "interceptors",
            "default.topic.config",
        ],
    )
    def test_a_setting_that_loads_code_runs_a_command_or_is_unknown_is_refused_by_name(self, setting: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(repr(setting))) as caught:
            require_connection(connection(**SASL, **{setting: "/tmp/hunter2.so"}), "source")

        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        ("setting", "value"),
        [
            ("acks", 1),
            ("acks", "0"),
            ("request.required.acks", "1"),
            ("enable.idempotence", False),
            ("enable.idempotence", "false"),
        ],
    )
    @pytest.mark.parametrize("what", ["sink", "dead_letter_queue"])
    def test_a_setting_that_undoes_a_guarantee_of_writing_is_refused(
        self, setting: str, value: object, what: str
    ) -> None:
        with pytest.raises(ConfigError, match=rf"sets {re.escape(setting)} to .*guarantees require"):
            require_connection(connection(**SASL, **{setting: value}), what)

    @pytest.mark.parametrize(
        ("what", "settings"),
        [
            ("source", {"acks": 1, "enable.idempotence": "true", "request.required.acks": "0"}),
            ("source", {"isolation.level": "read_uncommitted", "check.crcs": False}),
            ("sink", {"isolation.level": "read_uncommitted", "acks": "all", "enable.idempotence": True}),
        ],
    )
    def test_a_setting_that_the_connector_overrides_or_has_no_use_for_refuses_no_connection(
        self, what: str, settings: dict[str, Any]
    ) -> None:
        held = require_connection(connection(**SASL, **settings), what)

        assert not settings.keys() & client_config(held, "me").keys()
        config = consumer_config(held, "me", "p")
        assert (config["isolation.level"], config["check.crcs"]) == ("read_committed", True)

    @pytest.mark.parametrize("name", ["default", "default,legacy", "fips , base", "oqsprovider"])
    def test_a_provider_of_openssl_is_taken_by_its_name(self, name: str) -> None:
        assert client_config(require_connection(connection(**SASL, **{"ssl.providers": name}), "sink"), "me")[
            "ssl.providers"
        ]

    @pytest.mark.parametrize("name", ["/tmp/hunter2", "default,/tmp/hunter2", "../hunter2", "hunter2.so", "a\nb", ""])
    def test_a_provider_of_openssl_is_refused_by_a_path(self, name: str) -> None:
        with pytest.raises(ConfigError, match=r"ssl\.providers") as caught:
            require_connection(connection(**SASL, **{"ssl.providers": name}), "sink")

        assert "hunter2" not in str(caught.value)

    def test_the_brokers_may_go_by_their_other_name(self) -> None:
        held = require_connection(connection(**{"metadata.broker.list": "a:1,b:2"}), "source")

        assert bootstrap_servers(held) == client_config(held, "me")["bootstrap.servers"] == "a:1,b:2"
        both = connection(**{"metadata.broker.list": "a:1", "bootstrap.servers": "b:2"})
        assert client_config(both, "me").items() >= {"bootstrap.servers": "b:2"}.items()
        assert "metadata.broker.list" not in client_config(both, "me")

    @pytest.mark.parametrize(
        "settings",
        [
            {"log_level": 7, "log.connection.close": True, "log.queue": True, "log.thread.name": True, "debug": "all"},
            {"statistics.interval.ms": 5000, "socket.blocking.max.ms": 60, "topic.metadata.refresh.fast.cnt": 10},
            {"group.instance.id": "a", "group.protocol": "consumer", "group.remote.assignor": "uniform"},
            {"offset.store.method": "broker", "coordinator.query.interval.ms": 1000, "max.poll.records": 5},
            {"delivery.report.only.error": True, "queuing.strategy": "lifo", "auto.commit.enable": "false"},
        ],
    )
    @pytest.mark.parametrize("what", ["source", "sink", "dead_letter_queue"])
    def test_what_ordinary_clients_set_for_themselves_is_left_out_and_refuses_nothing(
        self, settings: dict[str, Any], what: str
    ) -> None:
        config = client_config(require_connection(connection(**SASL, **settings), what), "me")

        assert not config.keys() & settings.keys() - {"log_level", "log.connection.close"}
        assert (config["log_level"], config["log.connection.close"]) == (2, False)

    @pytest.mark.parametrize("make", [Producer, Consumer, AdminClient])
    def test_no_client_refuses_what_a_source_may_set(self, make: Any) -> None:
        shared = {"acks": 1, "enable.idempotence": True, "group.protocol": "consumer", "session.timeout.ms": 1}
        held = require_connection(connection(**{"metadata.broker.list": "localhost:1"}, **shared), "source")

        create_client(make, client_config(held, "me", {"group.id": "g"}), held)

    @pytest.mark.parametrize("value", ["ann; touch /tmp/x", "$(id)", "a b", "`id`", "a|b", "'", ""])
    def test_what_goes_into_a_shell_command_has_no_characters_of_its_own_there(self, value: str) -> None:
        with pytest.raises(ConfigError, match="a shell would interpret"):
            require_connection(connection(**SASL, **{"sasl.kerberos.principal": value}), "source")

    def test_a_connection_that_consumers_of_other_programs_use_too_is_taken(self) -> None:
        shared = {
            "group.id": "theirs",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": True,
            "session.timeout.ms": 6000,
            "transactional.id": "theirs",
            "error_cb": "their.module.tell",
            "acks": "all",
            "enable.idempotence": "True",
            "isolation.level": "read_committed",
            "ssl.keystore.location": "/keys/ann.p12",
            "sasl.kerberos.principal": "ann/host@EXAMPLE.ORG",
        }

        assert require_connection(connection(**SASL, **shared), "source").extra.items() >= shared.items()
        assert "auto.offset.reset" not in client_config(connection(**SASL, **shared), "me")

    def test_socket_timeout_says_how_long_a_broker_may_take(self) -> None:
        assert answer_timeout(connection(**SASL, **{"socket.timeout.ms": "2500"})) == 2.5
        assert answer_timeout(connection(**SASL)) == 10

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (None, "the kafka source has no connection"),
            (Connection("c", "postgres"), "has type 'postgres', not kafka"),
            (Connection("c", "kafka"), "names no broker"),
        ],
    )
    def test_a_connection_that_cannot_be_is_refused(self, given: Connection | None, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            require_connection(given, "source")

    def test_a_setting_that_is_none_is_named_and_no_secret_is(self) -> None:
        wrong = connection(**SASL, **{"sasl.passwort": "x", "sasl.password": "hunter2"})

        with pytest.raises(ConfigError, match=r"sasl\.passwort") as caught:
            create_client(Producer, client_config(wrong, "me"), wrong)

        assert "hunter2" not in str(caught.value)

    def test_a_secret_that_an_error_repeats_is_blotted_out(self) -> None:
        held = Connection("s", "kafka", password="pass-1", extra={**SASL, "ssl.key.password": "pass-2"})
        error = KafkaError(KafkaError._SSL, "no key for pass-1 or pass-2")

        assert to_error_info(error, ErrorType.KAFKA_CONSUMER, "reading", held).message.endswith("no key for *** or ***")


@pytest.mark.parametrize(
    ("code", "recoverable", "whole", "action"),
    [
        (KafkaError._TRANSPORT, True, True, ErrorAction.RETRY),
        (KafkaError._ALL_BROKERS_DOWN, True, True, ErrorAction.RETRY),
        (KafkaError.NOT_LEADER_FOR_PARTITION, True, True, ErrorAction.RETRY),
        (KafkaError.UNKNOWN_LEADER_EPOCH, True, True, ErrorAction.RETRY),
        (KafkaError.SASL_AUTHENTICATION_FAILED, False, True, ErrorAction.HALT),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, False, True, ErrorAction.HALT),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, False, True, ErrorAction.HALT),
        (KafkaError._BAD_MSG, False, False, ErrorAction.HALT),
    ],
)
def test_errors_say_whether_trying_again_helps_and_whether_all_is_out_of_reach(
    code: int, recoverable: bool, whole: bool, action: ErrorAction
) -> None:
    info = to_error_info(KafkaError(code), ErrorType.KAFKA_CONSUMER, "reading", connection(**SASL))

    assert (info.recoverable, info.is_outage, default_action(info)) == (recoverable, whole, action)


def test_a_producer_that_was_fenced_and_a_record_that_does_not_fit_are_told_apart() -> None:
    fenced = from_kafka_exception(
        KafkaException(KafkaError(KafkaError._FENCED)), ErrorType.KAFKA_PRODUCER, "committing", connection(**SASL)
    )
    unfit = to_error_info(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), ErrorType.KAFKA_PRODUCER, "", connection(**SASL))

    assert isinstance(fenced, FencedError)
    assert (unfit.type, default_action(unfit)) == (ErrorType.SERIALIZATION, ErrorAction.DEAD_LETTER)


def test_silence_is_explained_by_what_the_client_met_meanwhile() -> None:
    noticed = ClientErrors()
    noticed(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    noticed(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    silence = KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out"))

    error = from_kafka_exception(silence, ErrorType.KAFKA_CONSUMER, "asking", connection(**SASL), noticed)
    noticed(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    refused = from_kafka_exception(silence, ErrorType.KAFKA_CONSUMER, "asking", connection(**SASL), noticed)

    assert isinstance(error, KafkaConsumerError)
    assert error.message == "asking at broker:9093 (connection 'stream'): Connection refused"
    assert (error.recoverable, refused.recoverable) == (True, False)
    assert refused.message.endswith("wrong password")


def test_every_code_that_is_named_exists() -> None:
    assert error_codes("_TRANSPORT UNKNOWN_TOPIC_OR_PART") == {KafkaError._TRANSPORT, KafkaError.UNKNOWN_TOPIC_OR_PART}


def test_a_records_own_headers_come_as_text_where_a_sink_has_no_headers() -> None:
    error: ErrorInfo = record_error(ErrorType.SERIALIZATION, "no")
    own = (("a", b"x"), ("a", None), ("b", b"\xff"))

    plain = DeadLetter(1, None, b"", error, {"source-topic": "t"})
    full = DeadLetter(1, None, b"", error, {"source-topic": "t"}, own)

    assert plain.header_texts() == {"source-topic": "t"}
    assert full.header_texts() == {
        "source-topic": "t",
        "original-headers": '[["a", "x"], ["a", null], ["b", null, "/w=="]]',
    }
