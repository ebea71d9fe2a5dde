"""Divide Spark properties into those that a session can set and those that can only be set when Spark starts."""

from __future__ import annotations

from collections.abc import Mapping

_SESSION_PREFIX = "spark.sql."
_STATIC_PREFIXES = (
    "spark.sql.cache.",
    "spark.sql.catalog.",
    "spark.sql.hive.",
    "spark.sql.streaming.",
    "spark.sql.ui.",
)
_STATIC = frozenset(
    {
        "spark.sql.broadcastExchange.maxThreadThreshold",
        "spark.sql.catalogImplementation",
        "spark.sql.codegen.cache.maxEntries",
        "spark.sql.codegen.comments",
        "spark.sql.debug",
        "spark.sql.defaultUrlStreamHandlerFactory.enabled",
        "spark.sql.event.truncate.length",
        "spark.sql.extensions",
        "spark.sql.extensions.test.loadFromCp",
        "spark.sql.filesourceTableRelationCacheSize",
        "spark.sql.globalTempDatabase",
        "spark.sql.legacy.sessionInitWithConfigDefaults",
        "spark.sql.metadataCacheTTLSeconds",
        "spark.sql.queryExecutionListeners",
        "spark.sql.resultQueryStage.maxThreadThreshold",
        "spark.sql.shuffleExchange.maxThreadThreshold",
        "spark.sql.sources.disabledJdbcConnProviderList",
        "spark.sql.sources.schemaStringLengthThreshold",
        "spark.sql.subquery.maxThreadThreshold",
        "spark.sql.warehouse.dir",
    }
)
"""Properties that begin with ``spark.sql.``, but that Spark reads only once, when it starts."""


def static_part(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those properties that can only be set when Spark starts, such as ``spark.master``."""
    return {name: value for name, value in properties.items() if not _is_of_session(name)}


def session_part(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those properties that each session can set for itself, such as ``spark.sql.ansi.enabled``."""
    return {name: value for name, value in properties.items() if _is_of_session(name)}


def _is_of_session(name: str) -> bool:
    """Return whether the Spark property with this name can be set in a session of a running Spark."""
    return name.startswith(_SESSION_PREFIX) and name not in _STATIC and not name.startswith(_STATIC_PREFIXES)
