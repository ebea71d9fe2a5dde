"""Lists of source files are divided by size, and joined again without those of fenced runs."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.file_lists import FileList, continuing_lists, split_into_lists
from airflow_provider_ckpt.connectors.source_plan import SourceFile


def some(first: int, *names: str, size: int = 10) -> tuple[SourceFile, ...]:
    """Files of ten bytes each, at the place that their ordinals give them."""
    return tuple(
        SourceFile(number, f"/in/{name}", number * 10, size, "1-10-1") for number, name in enumerate(names, start=first)
    )


def test_a_list_survives_json() -> None:
    kept = FileList(7, some(3, "a", "b"), start=20)

    assert FileList.from_json(kept.to_json()) == kept
    assert (kept.first, kept.name) == (3, "files:3:7")


def test_many_files_are_parted_so_that_no_list_is_large() -> None:
    files = some(0, *(f"{'é' * 1000}{number}" for number in range(100)))

    lists = list(split_into_lists(files, 1, 5))

    assert len(lists) == 3
    assert [file for part in lists for file in part.files] == list(files)
    assert {part.start for part in lists} == {5}
    assert continuing_lists((), lists) == lists


def test_lists_are_followed_from_what_is_known() -> None:
    lists = [FileList(4, some(3, "d")), FileList(1, some(0, "a")), FileList(2, some(1, "b", "c"))]

    assert [part.first for part in continuing_lists((), lists)] == [0, 1, 3]
    assert [part.first for part in continuing_lists(some(0, "a"), lists)] == [1, 3]
    assert continuing_lists(some(0, "a", "b", "c", "d"), lists) == []


def test_of_two_lists_that_begin_together_the_newer_epoch_counts() -> None:
    lists = [FileList(5, some(0, "b")), FileList(6, some(0, "a"))]

    assert [part.epoch for part in continuing_lists((), lists)] == [6]


def test_what_a_fenced_run_listed_late_counts_for_nothing() -> None:
    known = some(0, "a", "b")
    same_again, elsewhere = FileList(1, some(2, "b")), FileList(9, (SourceFile(2, "/in/c", 21, 10, "1-10-1"),))
    good = FileList(3, some(2, "c"))

    assert continuing_lists(known, [same_again, elsewhere]) == []
    assert continuing_lists(known, [same_again, elsewhere, good]) == [good]


def test_a_list_that_is_missing_ends_the_chain() -> None:
    lists = [FileList(1, some(0, "a")), FileList(1, some(2, "c"))]

    assert [part.first for part in continuing_lists((), lists)] == [0]
