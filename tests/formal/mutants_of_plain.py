"""Mutants of the fast path: decoding without Spark SQL, raw copy, and the switch back to records."""

from __future__ import annotations

from collections.abc import Sequence

from tests.formal.mutant import Mutant

_LANES = "tests/integration/spark/test_fast_path.py"
_RAW = "tests/integration/connectors/postgres/test_raw_copy.py"
_AGAIN = f"{_LANES}::test_a_batch_with_another_record_is_done_again_and_every_record_arrives_once"
_ALIKE = f"{_LANES}::test_what_arrow_makes_of_a_plain_record_is_what_spark_makes_of_it"

OF_PLAIN: Sequence[Mutant] = (
    Mutant(
        "a batch with another record is delivered without looking at that",
        "spark/transform/plain_json.py",
        "FlatJsonDecoder.rows",
        "if decoded.null_count:\n    return None",
        "",
        test=f"{_AGAIN}[free]",
    ),
    Mutant(
        "what comes after a batch that was put off does not wait for it",
        "spark/lane/deliver.py",
        "Lane.defer",
        "self._deferred.add(deferred.key)",
        "",
        test=f"{_AGAIN}[pinned]",
    ),
    Mutant(
        "what waited for a batch that was put off stays undone",
        "spark/lane/stack_traces.py",
        "retry_wave",
        "task.key in answers or task.key in waited",
        "task.key in answers",
        test=f"{_AGAIN}[pinned]",
    ),
    Mutant(
        "a null that is an error is decoded without looking at it",
        "spark/wave.py",
        "_takes_records_as_they_are",
        "job.pipeline.error_handling.null_value_behavior == 'passthrough'",
        "True",
        test=f"{_LANES}::test_a_null_is_looked_at_where_the_pipeline_says_that_it_is_an_error",
    ),
    Mutant(
        "the original of a row that was decoded at once is its row",
        "spark/lane/fast_path.py",
        "run_lane",
        "flat_decoder is not None",
        "False",
        test=f"{_LANES}::test_the_original_of_a_row_that_the_sink_refuses_is_its_bytes",
    ),
    Mutant(
        "what was decoded at once has no value in its dead letter",
        "spark/lane/gather.py",
        "_add_dead_letters",
        "gathered.rejected = originals.restore_values(reader, task, gathered.rejected)",
        "pass",
        test=f"{_LANES}::test_a_plain_record_that_the_transform_rejects_is_its_bytes",
    ),
    Mutant(
        "a negative zero is plain",
        "spark/transform/plain_json.py",
        "",
        "(?:0|-?[1-9][0-9]{0,14}|-?(?:0",
        "(?:-?0|-?[1-9][0-9]{0,14}|-?(?:0",
        test=_ALIKE,
        text=True,
    ),
    Mutant(
        "an offset that Spark does not know is plain",
        "spark/transform/plain_json.py",
        "",
        "(?:0[0-9]|1[0-7])",
        "(?:0[0-9]|1[0-9])",
        test=_ALIKE,
        text=True,
    ),
    Mutant(
        "a text with escapes is plain",
        "spark/transform/plain_json.py",
        "",
        '[^"\\\\\\x00-\\x1f\\x7f]*"',
        '[^"\\x00-\\x1f\\x7f]*"',
        test="tests/unit/spark/transform/test_plain_json.py::test_whatever_might_be_wrong_is_not",
        text=True,
    ),
    Mutant(
        "numbers with more decimals than the target keeps are copied raw",
        "connectors/postgres/same_binary_form.py",
        "is_same_type",
        "theirs.modifier in (-1, ours.modifier)",
        "True",
        test=f"{_RAW}::test_another_type_or_a_rule_sends_records[id int8, name text, cost numeric(10, 1)-statements1]",
    ),
    Mutant(
        "raw data goes into a target that has rules",
        "connectors/postgres/raw_copy.py",
        "PostgresRawCopy._is_same",
        "if target.behaviour.inserts_only:\n    return False",
        "",
        test=f"{_RAW}::test_another_type_or_a_rule_sends_records[id int8, name text-statements6]",
    ),
    Mutant(
        "raw data is committed without counting what the target got",
        "connectors/postgres/raw_copy.py",
        "PostgresRawCopy._deliver",
        'f"{CHECK_CONSTRAINTS}; {writing.unaltered_check} {count.check}; COMMIT"',
        'f"{CHECK_CONSTRAINTS}; {writing.unaltered_check} COMMIT"',
        test=f"{_RAW}::test_a_trigger_that_swallows_rows_is_reported",
    ),
    Mutant(
        "a batch that could not be copied raw is not delivered as records",
        "spark/lane/fast_path.py",
        "_deliver",
        "if outcome is not None:\n    return outcome",
        "return outcome",
        test=f"{_RAW}::test_a_row_that_the_target_refuses_becomes_a_dead_letter_and_the_others_arrive_once",
    ),
    Mutant(
        "positions of times are counted from 2000 in the receipts of raw data",
        "connectors/postgres/copied_rows.py",
        "_to_positions",
        "return values + _MICROSECONDS_TO_2000",
        "return values",
        test=f"{_RAW}::test_receipts_are_those_of_records[timestamp-values4]",
    ),
)
