"""Tests of the error messages for users."""

from __future__ import annotations

from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType, IoError, SinkError


def test_an_error_says_its_type_where_it_was_and_what_to_do_next() -> None:
    error = SinkError(
        "the table is gone.", pipeline="orders", batch="p#3", position=17, hint="Create it.", sqlstate="42P01"
    )

    assert str(error) == "[Sink] pipeline orders, batch p#3, position 17: the table is gone. Create it."


def test_an_error_that_knows_no_place_says_only_what_is_wrong() -> None:
    assert str(ConfigError("no such file")) == "[Config] no such file"


def test_an_error_travels_as_data() -> None:
    error = SinkError("refused", sqlstate="08006", recoverable=True, is_outage=True)

    assert error.info == ErrorInfo(ErrorType.SINK, "refused", True, "08006", True)


def test_an_io_error_is_recoverable_unless_it_says_otherwise() -> None:
    assert IoError("full").info.recoverable
    assert not IoError("not a directory", recoverable=False).info.recoverable
    assert IoError("full").recoverable
