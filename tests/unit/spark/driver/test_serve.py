"""The waves of a run whose Spark fails."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import MagicMock

import pytest

from airflow_provider_ckpt.spark.driver.serve import serve


@pytest.mark.parametrize("stopped", [False, True])
def test_a_wave_is_reported_as_lost_unless_spark_has_stopped_and_would_lose_the_next_ones(*, stopped: bool) -> None:
    """Batches whose waves are lost again and again are held; a run that loses Spark goes on with another one."""
    prepared, side = MagicMock(), MagicMock(directory=Path("/run"))
    prepared.spark.sparkContext._jsc.sc().isStopped.return_value = stopped
    prepared.run_wave.side_effect = RuntimeError("SparkContext was shut down")
    side.waves.return_value = [MagicMock(number=number) for number in (1, 2)]

    if stopped:
        with pytest.raises(RuntimeError, match="shut down"):
            serve(prepared, side, MagicMock())
        side.failed.assert_not_called()
    else:
        assert serve(prepared, side, MagicMock())
        assert [call.args[0] for call in side.failed.call_args_list] == [1, 2]
