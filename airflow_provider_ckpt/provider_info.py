"""Description of the provider for Airflow's provider manager, in the form of ``provider_info.schema.json``.

Airflow calls :func:`get_provider_info` in every process, so the module imports nothing heavy.
"""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Ckpt"
_PACKAGE = "airflow_provider_ckpt"
_CONNECTION = {
    "connection-type": "ckpt",
    "hook-class-name": f"{_PACKAGE}.hooks.ckpt.CkptHook",
    "hook-name": "Ckpt ledger",
    "ui-field-behaviour": {
        "hidden-fields": ["extra"],
        "relabeling": {"schema": "Database"},
        "placeholders": {
            "host": "PostgreSQL host; leave it empty for SQLite",
            "port": "5432",
            "login": "ckpt",
            "schema": "ckpt",
            "path": "/var/lib/airflow/ckpt.db",
        },
    },
    "conn-fields": {
        "path": {
            "label": "SQLite file",
            "description": "Absolute path of an embedded ledger, in place of host and database.",
            "schema": {"type": ["string", "null"]},
        },
        "sslmode": {
            "label": "SSL mode",
            "description": "libpq's sslmode, for PostgreSQL.",
            "schema": {"type": ["string", "null"]},
        },
    },
}
_CONFIG = {
    "ckpt": {
        "description": "Checkpointed micro-batch replication.",
        "options": {
            "sql_alchemy_conn": {
                "description": (
                    "SQLAlchemy URL of the ledger, used if the connection ckpt_default is not defined. "
                    "Without either, the ledger is ckpt.db in AIRFLOW_HOME if the metadata database is SQLite, too."
                ),
                "version_added": "0.1.0",
                "type": "string",
                "sensitive": True,
                "example": "postgresql+psycopg2://ckpt:secret@db.example.com/ckpt",
                "default": None,
            },
            "spark_head_start": {
                "description": (
                    "Shorten the start of Spark with the submit engine: by an archive of the classes that the JVM "
                    "loads, created in the background after the first run, and on a local master by a Python daemon "
                    "that imports the modules of the lanes before it forks them."
                ),
                "version_added": "0.1.0",
                "type": "boolean",
                "example": None,
                "default": "True",
            },
            "spark_head_start_directory": {
                "description": (
                    "Directory of those archives, about 150 MB for each version of Java and Spark; only its owner may "
                    "have write access. By default airflow-provider-ckpt/spark in the user's cache directory."
                ),
                "version_added": "0.1.0",
                "type": "string",
                "example": "/var/cache/airflow/spark",
                "default": None,
            },
            "warm_spark": {
                "description": (
                    "Let runs with the engine warm share a Spark driver that stays on the machine between them. If "
                    "False, each run starts its own, as always in the pods of KubernetesExecutor, which live for one "
                    "task."
                ),
                "version_added": "0.1.0",
                "type": "boolean",
                "example": None,
                "default": "True",
            },
            "warm_spark_idle": {
                "description": "Seconds without runs after which such a driver ends.",
                "version_added": "0.1.0",
                "type": "float",
                "example": None,
                "default": "600",
            },
            "warm_spark_servers": {
                "description": (
                    "Maximum number of such drivers of one user on a machine. Runs with other static Spark properties "
                    "need another driver; it replaces one without runs, and if there is none, the run starts its own."
                ),
                "version_added": "0.1.0",
                "type": "integer",
                "example": None,
                "default": "2",
            },
            "spark_history_url": {
                "description": (
                    "URL of the Spark history server. A task links to its ended Spark application there, if that logs "
                    "events (spark.eventLog.enabled)."
                ),
                "version_added": "0.1.0",
                "type": "string",
                "example": "https://spark-history.example.com",
                "default": None,
            },
        },
    },
}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description: its classes, connection type, command line and configuration options.

    Airflow calls this through the entry point ``apache_airflow_provider``.
    """
    return {
        "package-name": "airflow-provider-ckpt",
        "name": "Ckpt",
        "description": "Checkpointed micro-batch replication on Apache Spark, exactly once where the sink can.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                # Paths in the repository and the source distribution, as in Airflow's own providers.
                "how-to-guide": ["/docs/operators.rst", "/docs/sensors.rst"],
                "logo": "/docs/img/logo.svg",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    f"{_PACKAGE}.operators.replicate",
                    f"{_PACKAGE}.operators.plan",
                    f"{_PACKAGE}.operators.submit",
                    f"{_PACKAGE}.operators.settle",
                    f"{_PACKAGE}.operators.route",
                    f"{_PACKAGE}.operators.retry",
                    f"{_PACKAGE}.operators.outcomes",
                    f"{_PACKAGE}.operators.database",
                    f"{_PACKAGE}.operators.recover",
                    f"{_PACKAGE}.operators.rewind",
                    f"{_PACKAGE}.operators.replay_dead_letters",
                    f"{_PACKAGE}.operators.batches",
                    f"{_PACKAGE}.operators.phases",
                    f"{_PACKAGE}.operators.preview",
                    f"{_PACKAGE}.operators.approval",
                    f"{_PACKAGE}.operators.carry_out",
                ],
            }
        ],
        "hooks": [{"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.hooks.ckpt"]}],
        "sensors": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    f"{_PACKAGE}.sensors.lag",
                    f"{_PACKAGE}.sensors.checkpoint",
                    f"{_PACKAGE}.sensors.attention",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": _INTEGRATION,
                "python-modules": [
                    f"{_PACKAGE}.triggers.next_round",
                    f"{_PACKAGE}.triggers.condition",
                    f"{_PACKAGE}.triggers.start_on_lag",
                ],
            }
        ],
        "task-decorators": [{"name": "ckpt_batch", "class-name": f"{_PACKAGE}.decorators.batch.ckpt_batch_task"}],
        "asset-uris": [{"schemes": ["ckpt"], "handler": f"{_PACKAGE}.assets.pipeline.sanitize_uri"}],
        "extra-links": [f"{_PACKAGE}.links.pipeline.PipelineLink", f"{_PACKAGE}.links.spark.SparkLink"],
        "notifications": [f"{_PACKAGE}.notifications.ckpt.CkptNotifier"],
        "connection-types": [_CONNECTION],
        "cli": [f"{_PACKAGE}.cli.commands.get_ckpt_commands"],
        "db-managers": [f"{_PACKAGE}.db_manager.CkptDBManager"],
        "config": _CONFIG,
    }
