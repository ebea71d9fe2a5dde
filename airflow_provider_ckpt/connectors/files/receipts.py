"""Store the receipts of the files sink: a marker file for each batch, and bundles of the markers of past epochs.

Creating the marker is the commit: the process that creates it has claimed the batch, and the marker states the name
under which the batch's rows become visible. The marker is created with its full content, as a hard link to a file that
is durable already (see ``fence.py``); this fails if the marker exists.

To avoid reading every marker in each run, the fence collects the markers of older epochs, which are final, in one
bundle. For each generation and partition, a bundle also has the highest seq and range end of its own and all older
receipts, so a search can stop before older bundles. Two processes may bundle the same marker, since a bundle is durable
before its markers are removed.

A receipt is removed only behind a fence, and only if the file with its batch's rows is gone (:meth:`.retract`).
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from airflow_provider_ckpt.connectors.files.fence import refuse_unless_current
from airflow_provider_ckpt.connectors.files.layout import FilesLayout, marker_name
from airflow_provider_ckpt.connectors.storage.filesystem import io_error, sync_directory, write_durably
from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt

_FORMAT = 1
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV})


@dataclass(frozen=True, slots=True)
class ClaimedReceipt:
    """A receipt as its marker stores it, with the batch's file and the id of the claim that created it.

    :param receipt: the receipt
    :param file: name of the batch's visible file; None if the batch has no rows
    :param claim: unique id of the claim
    """

    receipt: Receipt
    file: str | None
    claim: str

    def to_json(self) -> dict[str, Any]:
        """Return this object as a JSON-ready dict; :meth:`from_json` is its inverse."""
        return {"format": _FORMAT, **self.receipt.to_json(), "file": self.file, "claim": self.claim}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Restore a claimed receipt from the output of :meth:`to_json`."""
        return cls(Receipt.from_json(data), data["file"], data["claim"])


@dataclass(frozen=True, slots=True)
class _Bundle:
    entries: Sequence[ClaimedReceipt]
    positions: Mapping[tuple[int, str], tuple[int, int]]


class FilesReceipts:
    """Reader and writer of the receipts of one pipeline and ledger in one target directory.

    :param target: paths of the sink
    """

    def __init__(self, target: FilesLayout) -> None:
        self._target = target
        self._newest: tuple[int, _Bundle] | None = None
        self._listed: list[int] | None = None

    def claim(self, receipt: Receipt, file: str | None) -> tuple[ClaimedReceipt, bool]:
        """Claim a batch's verdict by creating its marker, unless the marker exists.

        :param receipt: the receipt to store
        :param file: name of the batch's visible file; None if the batch has no rows
        :return: the claimed receipt of the batch, and whether this claim created it
        :raises FencedError: if the fence is at a newer epoch; nothing was claimed
        :raises ConfigError: if the file system does not support hard links
        :raises SinkError: if an existing marker disappears while it is read
        :raises IoError: if the file system fails; the claim may have succeeded nevertheless
        """
        entry = ClaimedReceipt(receipt, file, uuid4().hex)
        prepared = self._target.epochs / str(receipt.epoch) / entry.claim
        marker = self._target.receipts / marker_name(receipt.key)
        try:
            _write_new(prepared, json.dumps(entry.to_json()).encode())
            os.link(prepared, marker)
        except FileExistsError as error:
            self._listed = None
            existing = self.find(receipt.key)
            if existing is None:
                raise SinkError(f"the marker {marker} disappeared while it was read.", recoverable=True) from error
            entry, own = existing, existing.claim == entry.claim
        except FileNotFoundError as error:
            refuse_unless_current(self._target, receipt.epoch)
            raise io_error(error, f"write {marker}") from error
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise ConfigError(
                    f"the file system of {self._target.directory} does not support hard links, which receipts need.",
                    hint="Write to a local disk or an NFS mount.",
                ) from error
            raise io_error(error, f"write {marker}") from error
        else:
            own = True
            self._sync()
        with suppress(OSError):  # else the next fence removes it
            prepared.unlink()
        return entry, own

    def find(self, key: BatchKey) -> ClaimedReceipt | None:
        """Return the claimed receipt of a batch after flushing it to the disk; None if the batch has no receipt.

        Bundles that were created since this object listed them are not read. This is safe: only a newer fence creates a
        bundle, and a caller that gets None and then claims the batch is refused by that fence.

        :param key: key of the batch
        """
        entry = self.find_by_marker(marker_name(key))
        if entry is not None:
            self._sync()
            return entry
        for bundle in self._bundles():
            if key.seq > bundle.positions.get((key.generation, key.partition), (-1, 0))[0]:
                return None
            for entry in bundle.entries:
                if entry.receipt.key == key:
                    return entry
        return None

    def unknown_to(self, known: Mapping[str, KnownReceipts]) -> list[Receipt]:
        """Return the receipts that the ledger does not know yet, ordered by key, after flushing them to the disk.

        :param known: for each partition, the generation and position up to which the ledger knows all receipts; all
            receipts of other partitions are returned
        """

        def is_known(generation: int, partition: str, end: int) -> bool:
            return partition in known and known[partition].covers(generation, end)

        found = {entry.receipt.key: entry.receipt for entry in self._read_markers()}
        self._listed = None
        self._sync()
        for bundle in self._bundles():
            if all(is_known(generation, name, end) for (generation, name), (_, end) in bundle.positions.items()):
                break
            found |= {entry.receipt.key: entry.receipt for entry in bundle.entries}
        unknown = (r for r in found.values() if not is_known(r.key.generation, r.key.partition, r.range.end))
        return sorted(unknown, key=lambda receipt: receipt.key)

    def entries(self, keys: Collection[BatchKey]) -> dict[BatchKey, ClaimedReceipt]:
        """Return the claimed receipts of the given batches; batches without a receipt are left out.

        :param keys: keys of the batches
        """
        wanted = set(keys)
        found: dict[BatchKey, ClaimedReceipt] = {}
        for entries in chain([self._read_markers()], (bundle.entries for bundle in self._bundles())):
            if len(found) == len(wanted):
                break
            found |= {entry.receipt.key: entry for entry in entries if entry.receipt.key in wanted}
        return found

    def newest(self) -> list[ClaimedReceipt]:
        """Return the claimed receipts in all markers and the newest bundle, from the last runs that delivered."""
        newest = next(iter(self._bundles()), None)
        return [*self._read_markers(), *(newest.entries if newest is not None else ())]

    def retract(self, keys: Collection[BatchKey]) -> None:
        """Remove receipts of batches whose files are gone, both from the markers and from the newest bundle.

        This must be called after the fence was raised.

        :param keys: the batches whose receipts are to be removed
        :raises IoError: if the file system fails
        """
        self._listed = None
        newest = next(iter(self._bundles()), None)
        try:
            for key in keys:
                (self._target.receipts / marker_name(key)).unlink(missing_ok=True)
            if newest is not None and any(entry.receipt.key in keys for entry in newest.entries):
                rest = [entry for entry in newest.entries if entry.receipt.key not in keys]
                self._write(self._bundle_file(self._epochs_bundled()[0]), rest, newest.positions)
        except OSError as error:
            raise io_error(error, f"write {self._target.bundles}") from error

    def find_by_marker(self, marker: str) -> ClaimedReceipt | None:
        """Return the claimed receipt that a marker stores; None if there is no such marker.

        :param marker: name of the marker
        :raises SinkError: if the marker is damaged
        :raises IoError: if the file system fails
        """
        path = self._target.receipts / marker
        try:
            return ClaimedReceipt.from_json(self._load(path))
        except FileNotFoundError:
            return None

    def bundle(self, epoch: int) -> None:
        """Collect the markers of older epochs in a bundle, and remove them.

        :param epoch: epoch of the fence
        :raises IoError: if the file system fails
        """
        old = {entry.receipt.key: entry for entry in self._read_markers() if entry.receipt.epoch < epoch}
        if not old:
            return
        self._listed = None
        path = self._bundle_file(epoch)
        if path.exists():  # from an earlier fence at the same epoch
            old = {entry.receipt.key: entry for entry in self._bundle(epoch).entries} | old
        newest = next(iter(self._bundles()), None)
        reach = dict(newest.positions) if newest is not None else {}
        for entry in old.values():
            key, end = entry.receipt.key, entry.receipt.range.end
            seq, highest = reach.get((key.generation, key.partition), (key.seq, end))
            reach[key.generation, key.partition] = (max(seq, key.seq), max(highest, end))
        try:
            self._write(path, list(old.values()), reach)
            for key in old:
                (self._target.receipts / marker_name(key)).unlink(missing_ok=True)
        except OSError as error:
            raise io_error(error, f"write {path}") from error

    def _write(
        self, path: Path, entries: Sequence[ClaimedReceipt], reach: Mapping[tuple[int, str], tuple[int, int]]
    ) -> None:
        document = {
            "format": _FORMAT,
            "receipts": [entry.to_json() for entry in entries],
            "reach": [[*where, *how_far] for where, how_far in sorted(reach.items())],
        }
        write_durably(path, json.dumps(document).encode())
        self._newest, self._listed = None, None

    def _bundle_file(self, epoch: int) -> Path:
        return self._target.bundles / f"{epoch}.json"

    def _read_markers(self) -> Iterator[ClaimedReceipt]:
        if self._target.receipts.is_dir():
            for path in self._target.receipts.iterdir():
                entry = self.find_by_marker(path.name)
                if entry is not None:
                    yield entry

    def _bundles(self) -> Iterator[_Bundle]:
        """Yield all bundles, newest first."""
        for epoch in self._epochs_bundled():
            yield self._bundle(epoch)

    def _epochs_bundled(self) -> list[int]:
        """Return the epochs whose fence created a bundle, newest first."""
        if self._listed is None:
            names = self._target.bundles.iterdir() if self._target.bundles.is_dir() else ()
            self._listed = sorted((int(path.stem) for path in names if path.suffix == ".json"), reverse=True)
        return self._listed

    def _bundle(self, epoch: int) -> _Bundle:
        if self._newest is not None and self._newest[0] == epoch:
            return self._newest[1]
        document = self._load(self._bundle_file(epoch))
        bundle = _Bundle(
            [ClaimedReceipt.from_json(item) for item in document["receipts"]],
            {(generation, partition): (seq, end) for generation, partition, seq, end in document["reach"]},
        )
        if self._newest is None or epoch > self._newest[0]:
            self._newest = (epoch, bundle)
        return bundle

    def _load(self, path: Path) -> Any:
        try:
            return json.loads(path.read_bytes())
        except ValueError as error:
            raise SinkError(
                f"the receipts in {path} are damaged.",
                pipeline=self._target.pipeline,
                hint="Restore that file from a backup; without it there is no record of which batches were delivered.",
            ) from error
        except FileNotFoundError:
            raise
        except OSError as error:
            raise io_error(error, f"read {path}") from error

    def _sync(self) -> None:
        try:
            if self._target.receipts.is_dir():
                sync_directory(self._target.receipts)
        except OSError as error:
            raise io_error(error, f"write {self._target.receipts}") from error


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file durably into an existing directory.

    :param path: the file, which must not exist
    :param data: its content
    :raises FileExistsError: if the file exists
    :raises FileNotFoundError: if the directory does not exist
    """
    with private_files.create(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
