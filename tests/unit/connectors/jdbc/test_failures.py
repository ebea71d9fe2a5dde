"""A JDBC driver's exception inside an error of Spark or Py4J is converted to an error without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc.failures import error_info, java_errors, missing_class, sql_error
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorType

SQL = ("java.sql.SQLException", "java.lang.Exception", "java.lang.Throwable")


class Kind:
    """A Java class."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def getName(self) -> str:  # noqa: N802  # Java's
        return self._names[0]

    def getSuperclass(self) -> Kind | None:  # noqa: N802
        return Kind(self._names[1:]) if len(self._names) > 1 else None


class Thrown:
    """A Java exception."""

    def __init__(self, *kinds: str, state: str | None = None, text: str = "no", cause: Thrown | None = None) -> None:
        self._kinds, self._state, self._text, self._cause = kinds, state, text, cause

    def getClass(self) -> Kind:  # noqa: N802
        return Kind(self._kinds)

    def getSQLState(self) -> str | None:  # noqa: N802
        return self._state

    def getMessage(self) -> str:  # noqa: N802
        return self._text

    def getCause(self) -> Thrown | None:  # noqa: N802
        return self._cause


class FromJavaError(Exception):
    """The exception class that Py4J raises."""

    def __init__(self, thrown: Any) -> None:
        super().__init__("An error occurred while calling o1.collect")
        self.java_exception = thrown


def driver(state: str | None, *kinds: str, text: str = "no") -> FromJavaError:
    """Spark's exception, with the driver's as its cause."""
    cause = Thrown(*kinds, *SQL, state=state, text=text)
    return FromJavaError(Thrown("org.apache.spark.SparkException", "java.lang.Exception", cause=cause))


@pytest.mark.parametrize(
    ("state", "kinds", "recoverable", "whole", "action"),
    [
        ("08006", (), True, True, ErrorAction.RETRY),
        ("57P01", (), True, True, ErrorAction.RETRY),
        ("40001", (), True, False, ErrorAction.RETRY),
        ("42501", (), False, False, ErrorAction.HALT),
        ("28P01", (), False, False, ErrorAction.HALT),
        ("22003", (), False, False, ErrorAction.HALT),
        ("90067", ("java.sql.SQLNonTransientConnectionException",), True, True, ErrorAction.RETRY),
        (None, ("java.sql.SQLRecoverableException",), True, True, ErrorAction.RETRY),
        ("28000", ("java.sql.SQLNonTransientConnectionException",), False, False, ErrorAction.HALT),
        ("HYT00", ("java.sql.SQLTimeoutException", "java.sql.SQLTransientException"), True, False, ErrorAction.RETRY),
        ("90001", (), False, False, ErrorAction.HALT),
    ],
)
def test_what_follows_from_a_driver_s_exception(
    state: str | None, kinds: tuple[str, ...], recoverable: bool, whole: bool, action: ErrorAction
) -> None:
    found = sql_error(driver(state, *kinds))
    assert found is not None

    info = error_info(found, "reading orders", Connection("c", "jdbc"))

    assert (info.type, info.sqlstate) == (ErrorType.SOURCE, state)
    assert (info.recoverable, info.is_outage) == (recoverable, whole)
    assert default_action(info) is action


def test_the_message_is_one_line_without_the_password() -> None:
    found = sql_error(driver("42P01", text='ERROR: no relation "hunter2"\n  Position: 15'))
    assert found is not None

    assert (
        error_info(found, "reading orders", Connection("c", "jdbc", password="hunter2")).message
        == 'reading orders: no relation "***"'
    )


def test_an_exception_of_another_kind_is_not_the_driver_s() -> None:
    assert sql_error(FromJavaError(Thrown("java.lang.OutOfMemoryError"))) is None
    assert sql_error(ValueError("no")) is None
    assert list(java_errors(ValueError("no"))) == []


def test_a_driver_that_spark_does_not_have_is_told_by_name() -> None:
    absent = Thrown("java.lang.ClassNotFoundException", text="com.example.Driver")

    assert missing_class(FromJavaError(Thrown("java.lang.RuntimeException", cause=absent))) == "com.example.Driver"
    assert missing_class(driver("08006")) is None
