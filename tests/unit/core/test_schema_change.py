"""Decisions about changed columns: every pair of two small lists of columns, under every policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations, permutations, product

import pytest

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.column_change import Change, ChangeKind, find_changes
from airflow_provider_ckpt.core.next_schema_version import ColumnUse, NextVersion, StepKind, TargetStep
from airflow_provider_ckpt.core.schema_change import Frozen, Waiting, decide, is_followed
from airflow_provider_ckpt.core.schema_policy import SchemaPolicy
from airflow_provider_ckpt.core.schema_version import (
    ColumnState,
    SchemaVersion,
    SourceColumn,
    VersionColumn,
    fingerprint,
)

ALLOWING = SchemaPolicy("evolve", "evolve", "keep", "follow")
POLICIES = [
    SchemaPolicy(*values)
    for values in product(
        ("evolve", "freeze", "discard"), ("evolve", "freeze"), ("keep", "freeze"), ("freeze", "as_new", "follow")
    )
]
REFUSING = [
    SchemaPolicy(*values)
    for values in product(("evolve", "dead_letter"), ("evolve",), ("keep",), ("as_new", "follow"), ("dead_letter",))
]
TYPES = ("int", "bigint", "text")


def is_wider(_: str, before: str, after: str) -> bool:
    """Only one type is wider than another here."""
    return (before, after) == ("int", "bigint")


def column(
    name: str, number: int, kind: str = "int", state: ColumnState = ColumnState.READ, kept: str = ""
) -> VersionColumn:
    return VersionColumn(name, number, kind, state, kept)


def in_target(columns: Sequence[VersionColumn]) -> dict[str, str]:
    """Names and types of the target's columns under a version that begins with it."""
    without = (ColumnState.LEFT_OUT, ColumnState.REFUSED)
    return {found.name: found.kept or found.type for found in columns if found.kept or found.state not in without}


def versions() -> Iterator[tuple[VersionColumn, ...]]:
    """Every version of the columns a (number 1) and b (number 2), each absent or in any state."""
    for states in product((None, *ColumnState), repeat=2):
        yield tuple(
            column(name, at, state=state)
            for at, (name, state) in enumerate(zip("ab", states, strict=True), 1)
            if state is not None
        )
    yield (column("a", 1, "text", ColumnState.REFUSED, "int"),)
    yield (column("a", 1, "text", ColumnState.REFUSED, "int"), column("b", 2))
    for kind in ("int", "text"):
        yield (VersionColumn("a", 1, kind, ColumnState.REFUSED, "int", added_again=True), column("b", 2))


def sources() -> Iterator[tuple[SourceColumn, ...]]:
    """Every source of at most two columns of the names a and b, numbers 1 to 3, and three types (of two only two)."""
    for size in range(3):
        for names in combinations("ab", size):
            for numbers in permutations((1, 2, 3), size):
                for kinds in product(TYPES[: 4 - size], repeat=size):
                    yield tuple(map(SourceColumn, names, numbers, kinds))


class RefusedByTargetError(Exception):
    """The target has a kept column that cannot store the values of the new one of its name."""


def changed_target(target: dict[str, str], decision: NextVersion) -> dict[str, str]:
    """A target after the steps of a decision; a step that is lossy or has no column fails."""
    target = dict(target)
    for step in decision.steps:
        if step.kind is StepKind.RENAME:
            assert step.type not in target
            target[step.type] = target.pop(step.name)
        elif step.kind is StepKind.ALLOW_NULL:
            assert step.name in target
        else:
            held = target.get(step.name)
            assert step.kind is StepKind.ADD or held is not None
            if held is None or is_wider("", held, step.type):
                target[step.name] = step.type
            elif held != step.type and not is_wider("", step.type, held):
                raise RefusedByTargetError
    return target


def assert_decision(
    before: tuple[VersionColumn, ...], now: tuple[SourceColumn, ...], policy: SchemaPolicy, *, unresolved: bool
) -> None:
    """Check one decision, and the decisions that follow from it, against what the policy says."""
    use = ColumnUse()
    target = in_target(before)
    decision = decide(before, now, policy, use, is_wider, unresolved=unresolved)
    present = [found for found in before if found.state is not ColumnState.NULL]
    assert (decision is None) == is_followed(before, now, policy)
    assert decision is not None or fingerprint(present) == fingerprint(now)
    if decision is None:
        return
    kinds = {change.kind for change in find_changes(before, now, is_wider)}
    assert isinstance(decision, Frozen) or ChangeKind.EXCHANGED not in kinds
    assert isinstance(decision, Frozen) or policy.other_type == "dead_letter" or ChangeKind.OTHER_TYPE not in kinds
    if policy == SchemaPolicy():
        assert isinstance(decision, Frozen) or not kinds
    if isinstance(decision, Frozen):
        assert policy != ALLOWING or kinds & {
            ChangeKind.OTHER_TYPE, ChangeKind.EXCHANGED, ChangeKind.REPLACED, ChangeKind.RENAMED
        }  # fmt: skip
        return
    if isinstance(decision, Waiting):
        assert unresolved
        assert {change.kind for change in decision.changes} <= {ChangeKind.NEW, ChangeKind.ADMITTED}
        columns: Sequence[VersionColumn] = before
    else:
        columns, target = decision.columns, changed_target(target, decision)
    read_before = {found.number for found in before if found.kept or found.state is ColumnState.READ}
    read = {found.number for found in columns if found.state is ColumnState.READ}
    if unresolved and ChangeKind.REPLACED not in kinds:
        assert read <= read_before, "planned batches get values of a column that they were not planned with"
    resolved = decide(columns, now, policy, use, is_wider, unresolved=False)
    assert not isinstance(resolved, Waiting | Frozen)
    if resolved is not None:
        columns, target = resolved.columns, changed_target(target, resolved)
    assert decide(columns, now, policy, use, is_wider, unresolved=True) is None
    assert_fits(columns, now, target)


def assert_fits(columns: Sequence[VersionColumn], now: Sequence[SourceColumn], target: dict[str, str]) -> None:
    """A version reads exactly the source's columns with their types, and the target can store them."""
    by_name = {found.name: found for found in now}
    assert {found.name for found in columns if found.state is not ColumnState.NULL} == set(by_name)
    for found in columns:
        if found.state is ColumnState.NULL:
            assert found.name in target
        else:
            assert (found.number, found.type) == (by_name[found.name].number, by_name[found.name].type)
        if found.state is ColumnState.READ:
            held = target[found.name]
            assert held == found.type or is_wider("", found.type, held)
        assert not found.kept or target[found.name] == found.kept


@pytest.mark.parametrize("unresolved", [False, True])
def test_every_decision_keeps_to_the_policy_narrows_nothing_and_gives_planned_batches_no_new_column(
    unresolved: bool,
) -> None:
    checked = 0
    for before, now, policy in product(versions(), sources(), [*POLICIES, *REFUSING]):
        with suppress(RefusedByTargetError):
            assert_decision(before, now, policy, unresolved=unresolved)
            checked += 1
    assert checked > 15_000


@pytest.mark.parametrize("unresolved", [False, True])
def test_every_accepted_change_is_followed_and_narrows_nothing(unresolved: bool) -> None:
    checked = 0
    policies = [SchemaPolicy(), SchemaPolicy("discard", other_type="dead_letter"), ALLOWING, *REFUSING]
    for before, now, policy in product(versions(), sources(), policies):
        with suppress(RefusedByTargetError):
            assert_accepted(before, now, policy, unresolved=unresolved)
            checked += 1
    assert checked > 2_000


def assert_accepted(
    before: tuple[VersionColumn, ...], now: tuple[SourceColumn, ...], policy: SchemaPolicy, *, unresolved: bool
) -> None:
    """Check the decisions about an accepted change until the version has the source's columns."""
    target = in_target(before)
    columns: Sequence[VersionColumn] = before
    open_batches = [unresolved, False]
    while (decision := decide(columns, now, policy, ColumnUse(), is_wider, unresolved=open_batches[0],
                              accepted=True)) is not None:  # fmt: skip
        if isinstance(decision, Frozen):
            assert all("which the target has already" in reason for reason in decision.reasons)
            return
        if isinstance(decision, Waiting):
            assert open_batches.pop(0)
            continue
        columns, target = decision.columns, changed_target(target, decision)
    assert_fits(columns, now, target)


@pytest.mark.parametrize("new_column", ["evolve", "freeze", "discard", "dead_letter"])
def test_an_accepted_type_is_read_after_planned_batches_whatever_the_policy_says_about_new_columns(
    new_column: str,
) -> None:
    before = (column("id", 1), column("c", 2, "text", ColumnState.REFUSED, "int"))
    now = (SourceColumn("id", 1, "int"), SourceColumn("c", 2, "text"))
    policy = SchemaPolicy(other_type="dead_letter", columns={"c": {"new_column": new_column}})

    first = decide(before, now, policy, ColumnUse(), is_wider, unresolved=True, accepted=True)
    second = decide(before, now, policy, ColumnUse(), is_wider, unresolved=False, accepted=True)

    assert first == Waiting([Change(ChangeKind.ADMITTED, "c", before[1], now[1])])
    assert isinstance(second, NextVersion)
    assert second.columns == (column("id", 1), column("c", 2, "text"))
    assert second.steps == (TargetStep(StepKind.ADD, "c", "text"),)
    assert second.decision == ("column c (text) is no longer refused: it is read again",)


@pytest.mark.parametrize("kind", ["int", "text"])
def test_a_dropped_column_that_is_added_again_is_refused_until_the_policy_admits_new_columns(kind: str) -> None:
    before = (column("id", 1), column("c", 2, state=ColumnState.NULL))
    now = (SourceColumn("id", 1, "int"), SourceColumn("c", 3, kind))
    refusing = SchemaPolicy("dead_letter", other_type="dead_letter")

    def following(columns: Sequence[VersionColumn], policy: SchemaPolicy) -> object:
        return decide(columns, now, policy, ColumnUse(), is_wider, unresolved=False)

    refused = following(before, refusing)
    assert isinstance(refused, NextVersion)
    assert refused.columns[1] == VersionColumn("c", 3, kind, ColumnState.REFUSED, "int", added_again=True)
    assert following(refused.columns, refusing) is None
    admitted, left_out = (following(refused.columns, SchemaPolicy(value)) for value in ("evolve", "discard"))
    assert isinstance(admitted, NextVersion)
    assert admitted.columns[1] == column("c", 3, kind)
    assert isinstance(left_out, NextVersion)
    assert left_out.columns[1] == column("c", 3, kind, ColumnState.LEFT_OUT)
    changed = (now[0], SourceColumn("c", 3, "bigint"))
    wider = decide(refused.columns, changed, SchemaPolicy("dead_letter", "evolve", other_type="dead_letter"),
                   ColumnUse(), is_wider, unresolved=False)  # fmt: skip
    assert isinstance(wider, NextVersion)
    assert wider.columns[1].state is ColumnState.REFUSED


@pytest.mark.parametrize(
    ("kind", "added_again", "renamed", "frozen"),
    [
        ("int", False, "follow", None),
        ("int", False, "freeze", "schema.renamed_column is freeze"),
        ("bigint", False, "follow", "does not have all values of the old type"),
        ("int", True, "follow", "does not have all values of the old type"),
    ],
)
def test_a_refused_column_that_gets_another_name_and_the_targets_type_at_once_is_renamed_and_read(
    kind: str, added_again: bool, renamed: str, frozen: str | None
) -> None:
    refused = VersionColumn("c", 2, "text", ColumnState.REFUSED, "int", added_again=added_again)
    now = (SourceColumn("id", 1, "int"), SourceColumn("d", 2, kind))
    policy = SchemaPolicy("dead_letter", "evolve", "keep", renamed, "dead_letter")

    decision = decide((column("id", 1), refused), now, policy, ColumnUse(), is_wider, unresolved=False)

    if frozen is not None:
        assert isinstance(decision, Frozen)
        assert frozen in decision.reasons[0]
        return
    assert isinstance(decision, NextVersion)
    assert decision.columns == (column("id", 1), column("d", 2))
    assert decision.steps[0] == TargetStep(StepKind.RENAME, "c", "d")
    assert is_followed(decision.columns, now, policy)


def test_what_no_target_can_follow_is_frozen_even_if_it_is_accepted() -> None:
    before = (column("id", 1), column("a", 2), column("b", 3))
    use = ColumnUse(("id",), chosen=True, used=lambda name: name == "a")

    decision = decide(before, (SourceColumn("id", 1, "text"), SourceColumn("c", 2, "int"), SourceColumn("b", 3, "int")),
                      SchemaPolicy(), use, is_wider, unresolved=False, accepted=True)  # fmt: skip

    assert decision == Frozen(
        [
            "column id (int) has type text now; it is the cursor or part of a key",
            "column a (int) was renamed to c; the transform uses it under its old name",
        ]
    )


@pytest.mark.parametrize(
    ("now", "kinds"),
    [
        ([SourceColumn("a", 1, "int"), SourceColumn("b", 2, "int"), SourceColumn("c", 3, "int")], {"c": "new_column"}),
        ([SourceColumn("a", 1, "bigint"), SourceColumn("b", 2, "text")], {"a": "wider_type", "b": "other_type"}),
        ([SourceColumn("b", 2, "int")], {"a": "dropped_column"}),
        ([SourceColumn("c", 1, "int"), SourceColumn("b", 2, "int")], {"a": "renamed_column"}),
        ([SourceColumn("a", 3, "int"), SourceColumn("b", 2, "int")], {"a": "replaced_column"}),
        (
            [SourceColumn("a", 2, "int"), SourceColumn("b", 1, "int")],
            {"a": "exchanged_column", "b": "exchanged_column"},
        ),
        ([SourceColumn("b", 1, "int")], {"a": "dropped_column", "b": "exchanged_column"}),
    ],
)
def test_kinds_of_changes_follow_from_names_and_numbers(now: list[SourceColumn], kinds: dict[str, str]) -> None:
    found = find_changes([column("a", 1), column("b", 2)], now, is_wider)

    assert {change.name: change.kind.value for change in found} == kinds


def test_a_column_is_renamed_even_if_a_new_one_has_its_old_name() -> None:
    before = (column("a", 1), column("b", 2))
    now = (SourceColumn("c", 1, "int"), SourceColumn("a", 3, "text"), SourceColumn("b", 2, "int"))

    found = find_changes(before, now, is_wider)
    first = decide(before, now, ALLOWING, ColumnUse(), is_wider, unresolved=True)

    assert [(change.kind, change.name) for change in found] == [(ChangeKind.RENAMED, "a"), (ChangeKind.NEW, "a")]
    assert isinstance(first, NextVersion)
    assert [(c.name, c.number, c.state.value) for c in first.columns] == [("c", 1, "read"), ("b", 2, "read")]
    second = decide(first.columns, now, ALLOWING, ColumnUse(), is_wider, unresolved=False)
    assert isinstance(second, NextVersion)
    assert [(step.kind, step.name) for step in (*first.steps, *second.steps)] == [
        (StepKind.RENAME, "a"), (StepKind.WIDEN, "c"), (StepKind.ADD, "a")
    ]  # fmt: skip
    swapped = (SourceColumn("c", 1, "int"), SourceColumn("a", 2, "int"))
    kinds = {change.name: change.kind for change in find_changes(before, swapped, is_wider)}
    assert kinds["a"] is ChangeKind.EXCHANGED


def test_batches_without_a_verdict_are_read_without_a_dropped_column_before_a_new_one_begins() -> None:
    before = (column("a", 1), column("b", 2))
    now = (SourceColumn("a", 1, "bigint"), SourceColumn("c", 3, "int", required=True))

    first = decide(before, now, ALLOWING, ColumnUse(), is_wider, unresolved=True)

    assert isinstance(first, NextVersion)
    assert [(c.name, c.type, c.state.value) for c in first.columns] == [("a", "bigint", "read"), ("b", "int", "null")]
    second = decide(first.columns, now, ALLOWING, ColumnUse(), is_wider, unresolved=True)
    assert second == Waiting([Change(ChangeKind.NEW, "c", None, now[1])])
    third = decide(first.columns, now, ALLOWING, ColumnUse(), is_wider, unresolved=False)
    assert isinstance(third, NextVersion)
    assert third.decision == ("column c (int) is new: the target gets it, without NOT NULL",)


def test_a_column_that_the_transform_uses_or_that_orders_rows_is_frozen_and_any_other_is_not_its_concern() -> None:
    before = (column("id", 1), column("a", 2), column("b", 3))
    chosen = ColumnUse(("id",), chosen=True, used=lambda name: name == "a")

    unused = decide(before, (SourceColumn("id", 1, "int"), SourceColumn("a", 2, "int"), SourceColumn("c", 4, "int")),
                    SchemaPolicy(), chosen, is_wider, unresolved=True)  # fmt: skip
    used = decide(before, (SourceColumn("id", 1, "int"), SourceColumn("b", 3, "int")),
                  ALLOWING, chosen, is_wider, unresolved=False)  # fmt: skip
    cursor = decide(before, (SourceColumn("key", 1, "int"), SourceColumn("a", 2, "int"), SourceColumn("b", 3, "int")),
                    ALLOWING, ColumnUse(("id",)), is_wider, unresolved=False)  # fmt: skip

    assert isinstance(unused, NextVersion)
    assert unused.steps == ()
    assert [(c.name, c.state.value) for c in unused.columns] == [("id", "read"), ("a", "read"), ("c", "left_out")]
    assert used == Frozen(["column a (int) was dropped; the transform uses it"])
    assert cursor == Frozen(["column id (int) was renamed to key; it is the cursor or part of a key"])


@pytest.mark.parametrize(
    ("name", "reason"), [("__POS", "a control column"), ("A", "only in case"), ("B", "only in case")]
)
def test_names_of_control_columns_and_names_that_differ_only_in_case_are_refused(name: str, reason: str) -> None:
    before = (column("a", 1), column("b", 2, state=ColumnState.NULL))
    use = ColumnUse(reserved={"__pos"})

    decision = decide(before, (SourceColumn("a", 1, "int"), SourceColumn(name, 3, "int")), ALLOWING, use, is_wider,
                      unresolved=False)  # fmt: skip

    assert isinstance(decision, Frozen)
    assert reason in decision.reasons[0]


def test_a_column_can_have_a_policy_of_its_own() -> None:
    before = (column("a", 1), column("b", 2))
    policy = SchemaPolicy("evolve", columns={"c": {"new_column": "discard"}, "b": {"dropped_column": "keep"}})
    now = (SourceColumn("a", 1, "int"), SourceColumn("c", 3, "int"), SourceColumn("d", 4, "int"))

    decision = decide(before, now, policy, ColumnUse(), is_wider, unresolved=False)

    assert isinstance(decision, NextVersion)
    assert {found.name: found.state.value for found in decision.columns} == {
        "a": "read", "b": "null", "c": "left_out", "d": "read",
    }  # fmt: skip
    frozen = SchemaPolicy(columns={"c": {"new_column": "freeze"}, "b": {"dropped_column": "keep"}})
    assert decide(before, now, frozen, ColumnUse(), is_wider, unresolved=False) == Frozen(
        [
            "column c (int) is new, and schema.columns.c.new_column is freeze",
            "column d (int) is new, and schema.new_column is freeze",
        ]
    )


def test_a_column_of_a_new_name_needs_a_policy_of_this_name_that_admits_it() -> None:
    before = (column("id", 1), column("a", 2))
    now = (SourceColumn("id", 1, "int"), SourceColumn("b", 2, "int"))
    policy = SchemaPolicy("evolve", "freeze", "keep", "as_new", columns={"b": {"new_column": "freeze"}})
    other = SchemaPolicy("evolve", "freeze", "keep", "as_new", columns={"a": {"new_column": "freeze"}})

    assert decide(before, now, policy, ColumnUse(), is_wider, unresolved=False) == Frozen(
        ["column a (int) was renamed to b, and schema.columns.b.new_column is freeze"]
    )
    assert isinstance(decide(before, now, other, ColumnUse(), is_wider, unresolved=False), NextVersion)


def test_a_version_is_the_same_after_its_json_form() -> None:
    version = SchemaVersion(
        2,
        "public.t",
        1,
        77,
        (
            column("a", 1),
            column("b", 2, state=ColumnState.NULL),
            column("c", 3, "text", ColumnState.REFUSED, "int"),
            VersionColumn("d", 4, "int", ColumnState.REFUSED, "int", added_again=True),
        ),
        ("b went",),
        (BatchKey(1, "p", 3),),
    )

    assert SchemaVersion.from_json(version.to_json()) == version


def test_a_target_gets_the_columns_that_the_rows_of_a_version_have() -> None:
    columns = [
        VersionColumn("read", 1, "int"),
        VersionColumn("dropped", 2, "text", ColumnState.NULL),
        VersionColumn("left_out", 3, "int", ColumnState.LEFT_OUT),
        VersionColumn("refused", 4, "int", ColumnState.REFUSED),
        VersionColumn("kept", 5, "int", ColumnState.REFUSED, "varchar(5)"),
    ]

    found = SchemaVersion(1, "p", 1, 0, columns).target_columns

    assert [(column.name, column.type) for column in found] == [
        ("read", "int"),
        ("dropped", "text"),
        ("kept", "varchar(5)"),
    ]
