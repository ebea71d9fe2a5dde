"""Keep the state of one run that a standing driver is serving, and exchange signals with the run's client."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field

from airflow_provider_ckpt.spark.driver import standing_protocol

_POLL_INTERVAL = 0.5
"""Seconds after which a run's file of waves is read again even if the client has not announced a new wave."""


@dataclass
class ServedRun:
    """A run that a standing driver is serving: its connection, its place in Spark's scheduler and its wake-up event.

    :param number: number of the run among all runs that this driver has accepted, from 1
    :param slot: number of the run's pool in Spark's scheduler, which no other current run has
    :param connection: socket connection to the run's client, the process that holds the lease
    :ivar pipeline: name of the pipeline; empty until the job is read
    :ivar epoch: epoch of the run; 0 until the job is read
    :ivar started: time at which the run was accepted, in seconds of the monotonic clock
    :ivar bell: event that is set when there may be a new wave, or when the client is gone
    :ivar client_gone: whether the client has closed its end of the connection
    """

    number: int
    slot: int
    connection: socket.socket
    pipeline: str = ""
    epoch: int = 0
    started: float = field(default_factory=time.monotonic)
    bell: threading.Event = field(default_factory=threading.Event)
    client_gone: bool = False

    @property
    def group(self) -> str:
        """Name of the job group of this run's Spark jobs, by which they can be cancelled."""
        return f"ckpt-run-{self.number}"

    def wait(self) -> bool:
        """Wait until there may be a new wave, for 0.5 s at most; return False if the client is gone."""
        self.bell.wait(_POLL_INTERVAL)
        self.bell.clear()
        return not self.client_gone

    def notify(self) -> None:
        """Tell the client, by a :data:`~.standing_protocol.BELL` byte, that the run directory has a new reply."""
        if not self.client_gone:
            try:
                self.connection.sendall(standing_protocol.BELL)
            except OSError:
                self.client_gone = True
