"""Airflow plugin that imports the provider in the scheduler before it forks its workers, to save time in each task."""

import airflow_provider_ckpt.connectors.files.source
import airflow_provider_ckpt.connectors.postgres.sink
import airflow_provider_ckpt.dag_factories.pipelines
import airflow_provider_ckpt.dag_factories.recovery
import airflow_provider_ckpt.engines.factory
import airflow_provider_ckpt.engines.submit
import airflow_provider_ckpt.engines.warm
import airflow_provider_ckpt.ledger.ledger
import airflow_provider_ckpt.operators.replicate
import airflow_provider_ckpt.replication.run.replicate
import airflow_provider_ckpt.task_groups.replication
import airflow_provider_ckpt.triggers.next_round  # noqa: F401
