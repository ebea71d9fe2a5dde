"""Files that the package writes for itself are readable by their user only, and symbolic links are not followed."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_provider_ckpt.cli import dlq as exported
from airflow_provider_ckpt.connectors.files.dead_letter_store import FilesDeadLetterStore
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.storage.filesystem import write_durably
from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import LedgerUnavailableError
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.engines.class_archive import ClassArchive
from airflow_provider_ckpt.engines.run_directory import RunDirectory
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.spark.driver.run_directory_protocol import LeaseHolderSide
from tests.integration.connectors.batches import LEDGER, content, task
from tests.integration.connectors.files.files_sink_support import Run, pipeline, visible


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes(folder: Path) -> tuple[set[int], set[int]]:
    """The modes of all directories and of all files from a folder on."""
    found = [folder, *folder.rglob("*")]
    return {mode(path) for path in found if path.is_dir()}, {mode(path) for path in found if path.is_file()}


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask-000", "umask-022", "umask-077"])
def mask(request: pytest.FixtureRequest) -> int:
    return int(request.param)


class TestModes:
    def test_of_a_files_sink_s_bookkeeping_and_dead_letters(self, tmp_path: Path, mask: int) -> None:
        out = tmp_path / "deep" / "out"
        with umask(mask):
            run = Run(out).fence()
            run.send(0, bad=2)
            run.sink.store_replay("dlq:1:files", Replay(()))
            Run(out, epoch=2).fence().send(1)

        assert modes(out / "_ckpt") == ({0o700}, {0o600})
        assert modes(out.with_name("out.dead_letters")) == ({0o700}, {0o600})
        assert {mode(file) for file in visible(out)} == {0o666 & ~mask}  # rows are for others to read
        assert {mode(out), mode(out.parent)} == {0o777 & ~mask}

    def test_of_dead_letters_in_a_place_of_their_own(self, tmp_path: Path, mask: int) -> None:
        place = tmp_path / "dead_letters"
        queue = {"sink": "files", "path": str(place)}
        with umask(mask):
            box = FilesDeadLetterStore(
                pipeline(tmp_path, dead_letter_queue=queue), None, SinkContext(LEDGER, "flights", 1)
            )
            box.check()
            assert not place.exists()  # whatever is refused after this leaves nothing behind
            box.store(task(0), content(0, bad=1).dead_letters, 0)

        assert modes(place) == ({0o700}, {0o600})

    def test_of_a_ledger_in_a_file(self, tmp_path: Path, mask: int) -> None:
        url = f"sqlite:///{tmp_path}/deep/ckpt.db"
        with umask(mask):
            migrate.upgrade(url, create=True)
            with Ledger.open(url) as ledger:
                assert ledger.id
                assert modes(tmp_path / "deep") == ({0o700}, {0o600})

    def test_of_a_run_s_directory_and_what_is_handed_to_spark(self, tmp_path: Path, mask: int) -> None:
        with umask(mask):
            directory = RunDirectory()
            LeaseHolderSide(directory.path).stop()

        assert modes(directory.path) == ({0o700}, {0o600})
        directory.remove()

    def test_of_archives_and_exports(self, tmp_path: Path, mask: int) -> None:
        archive = ClassArchive(tmp_path / "archives", "key")
        with umask(mask):
            with archive.creation_lock() as alone:
                assert alone
                archive.unfinished_path.write_bytes(b"classes")
                archive.publish()
            with exported._create_file(str(tmp_path / "letters.jsonl")) as file:
                file.write("é")

        assert modes(tmp_path / "archives") == ({0o700}, {0o600})
        assert mode(tmp_path / "letters.jsonl") == 0o600
        assert (tmp_path / "letters.jsonl").read_text() == "é"


class TestPlantedLinks:
    @pytest.fixture
    def shared(self, tmp_path: Path) -> Path:
        """A folder in which everybody may write, as the temporary one."""
        folder = tmp_path / "shared"
        folder.mkdir()
        folder.chmod(0o1777)
        return folder

    @pytest.fixture
    def victim(self, tmp_path: Path) -> Path:
        path = tmp_path / "victim"
        path.write_text("precious")
        return path

    def test_no_file_is_created_or_appended_to_through_one(self, shared: Path, victim: Path) -> None:
        (shared / "name").symlink_to(victim)
        (shared / "nowhere").symlink_to(shared / "absent")

        for path in (shared / "name", shared / "nowhere"):
            with pytest.raises(FileExistsError):
                private_files.create(path)
            with pytest.raises(OSError, match="symbolic links"):
                private_files.append(path)
            with pytest.raises(FileExistsError):
                write_durably(path, b"x", exclusive=True)
        assert victim.read_text() == "precious"
        assert not (shared / "absent").exists()

    def test_what_is_replaced_is_the_link_and_not_what_it_leads_to(self, shared: Path, victim: Path) -> None:
        (shared / "letters.jsonl").symlink_to(victim)
        (shared / f".letters.jsonl.{os.getpid()}.tmp").symlink_to(victim)

        write_durably(shared / "letters.jsonl", b"new")

        assert victim.read_text() == "precious"
        assert (shared / "letters.jsonl").read_text() == "new"
        assert not (shared / "letters.jsonl").is_symlink()

    def test_names_of_what_is_on_its_way_cannot_be_guessed(self, shared: Path) -> None:
        names = {private_files.temporary_path(shared / ("x" * 255)) for _ in range(10)}

        assert len(names) == 10
        assert max(len(name.name) for name in names) < 255

    def test_a_log_of_another_kind_or_user_is_not_written(self, shared: Path) -> None:
        os.mkfifo(shared / "fifo")

        with pytest.raises(OSError, match=r"No such device or address|not a regular file of this user"):
            private_files.append(shared / "fifo")

    def test_no_ledger_is_made_where_one_leads(self, shared: Path) -> None:
        (shared / "ckpt.db").symlink_to(shared / "elsewhere.db")

        with pytest.raises(LedgerUnavailableError):
            migrate.upgrade(f"sqlite:///{shared}/ckpt.db", create=True)
        assert not (shared / "elsewhere.db").exists()

    def test_an_archive_s_log_does_not_go_through_one(self, shared: Path, victim: Path) -> None:
        archive = ClassArchive(shared, "key")
        (shared / "key.log").symlink_to(victim)

        with pytest.raises(OSError, match="symbolic links"), archive.creation_lock():
            pass
        assert victim.read_text() == "precious"

    def test_a_run_s_directory_has_a_name_that_nobody_can_guess(
        self, shared: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(shared))
        one, other = RunDirectory(), RunDirectory()

        assert one.path.parent == shared
        assert one.path != other.path
        one.remove()
        other.remove()
