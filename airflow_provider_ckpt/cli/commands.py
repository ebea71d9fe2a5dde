"""The group ``airflow ckpt`` and the order of its commands, as ``airflow ckpt --help`` shows them."""

from __future__ import annotations

from airflow.cli.cli_config import CLICommand, GroupCommand

from airflow_provider_ckpt.cli.definitions.administration import administration_commands, spark_commands
from airflow_provider_ckpt.cli.definitions.dead_letters import dead_letter_commands
from airflow_provider_ckpt.cli.definitions.inspection import inspection_commands
from airflow_provider_ckpt.cli.definitions.phases_and_batches import batch_commands, phase_commands
from airflow_provider_ckpt.cli.definitions.recovery import reread_commands, sink_commands
from airflow_provider_ckpt.cli.definitions.runs import database_commands, run_commands
from airflow_provider_ckpt.cli.definitions.schema import schema_commands


def get_ckpt_commands() -> list[CLICommand]:
    """Return the group ``airflow ckpt`` with all of its commands; the provider info names this function to Airflow."""
    commands = (
        *run_commands(),
        *database_commands(),
        *inspection_commands(),
        *phase_commands(),
        *batch_commands(),
        *reread_commands(),
        *sink_commands(),
        *schema_commands(),
        *dead_letter_commands(),
        *administration_commands(),
        *spark_commands(),
    )
    return [GroupCommand("ckpt", "Checkpointed replication: pipelines and the ledger", commands)]
