"""Discover the files of a files source: list them, order the new ones, and detect changed and missing delivered ones.

A file must be complete when it appears under its final name: write it elsewhere or as ``name.tmp``, then rename it. A
file that changes after it was recorded is an error, not new data.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from airflow_provider_ckpt.connectors.files.listing import Listing, check_path, is_pattern, list_files
from airflow_provider_ckpt.connectors.files.recorded_file import FOLLOW_LINKS, LINK, FileIdentity, etag_of
from airflow_provider_ckpt.connectors.source_protocol import SourceFile
from airflow_provider_ckpt.core.errors import CkptError, SourceError


@dataclass(frozen=True, slots=True)
class Discovery:
    """Result of a discovery: the files of a source that are new, missing or refused.

    :param new: files that are not recorded yet, oldest first; their positions follow those of the recorded files
    :param gone: recorded files that were delivered and no longer exist
    :param refused: errors for delivered files that changed, and for paths that could not be listed or recorded
    :param notices: warnings about probable mistakes, one sentence each
    """

    new: Sequence[SourceFile]
    gone: Sequence[SourceFile] = ()
    refused: Sequence[CkptError] = ()
    notices: Sequence[str] = field(default=())


def discover(
    path: Path,
    known: Sequence[SourceFile],
    *,
    delivered: int = 0,
    follow_links: bool = False,
    look_again: bool = True,
) -> Discovery:
    """List a files source and compare it with the files that were discovered before.

    :param path: directory (without its subdirectories), glob pattern (``**`` matches any number of directories) or file
    :param known: all files discovered before, in order
    :param delivered: end of the delivered positions: all positions before it have a verdict
    :param follow_links: whether to follow symbolic links
    :param look_again: whether to check known files, too; if not, ``gone`` and ``refused`` say nothing about them
    :raises SourceError: if the directory is missing or unreadable
    """
    check_path(path)
    passed = () if look_again else frozenset(file.path for file in known)
    listing = list_files(path, follow_links=follow_links, known=passed)
    refused: list[CkptError] = [*listing.refused]
    only_links = _only_links(listing, known)
    if only_links:
        refused.append(_only_links_error(path, listing))
    missing, others, moved = _check_delivered(listing, known if look_again else (), delivered)
    refused += others
    found: list[tuple[int, str, os.stat_result]] = []
    for name, status in listing.files.items():
        if _is_utf8(name):
            found.append((status.st_mtime_ns, name, status))
        else:
            message = f"the name of file {name!a} is not UTF-8, so the ledger cannot record it."
            refused.append(SourceError(message, hint="Rename the file."))
    new = []
    base = known[-1].base + known[-1].size if known else 0
    for ordinal, (_, name, status) in enumerate(sorted(found, key=lambda item: item[:2]), start=len(known)):
        new.append(SourceFile(ordinal, name, base, status.st_size, etag_of(status)))
        base += status.st_size
    notices = _notices(path, listing, none=not known and not new and not only_links)
    if moved:
        notices.append(
            f"source.path {path}: {moved} delivered files were replaced by other files of the same sizes and times; "
            "they are treated as copies"
        )
    return Discovery(new, missing, refused, notices)


def _check_delivered(
    listing: Listing, known: Sequence[SourceFile], delivered: int
) -> tuple[list[SourceFile], list[SourceError], int]:
    """Remove the known files from the listing, and check that the delivered ones are as they were recorded.

    :param listing: the files that exist; the known ones are removed from it
    :param known: all files discovered before, in order
    :param delivered: end of the delivered positions
    :return: delivered files that no longer exist, errors for those that changed, and the number of delivered files that
        were replaced by files of the same size and time
    """
    missing: list[SourceFile] = []
    refused: list[SourceError] = []
    moved = 0
    for file in known:
        status = listing.files.pop(file.path, None)
        if file.base + file.size > delivered:
            continue
        if status is None:
            if file.path not in listing.links:  # a notice or an error reports the link
                missing.append(file)
        elif etag_of(status) != file.etag:
            was = FileIdentity.parse(file.etag)
            if (was.time, was.size) == (status.st_mtime_ns, status.st_size):
                moved += 1
            else:
                refused.append(changed_file_error(file, status))
    return missing, refused, moved


def _only_links(listing: Listing, known: Sequence[SourceFile]) -> bool:
    """Return whether only symbolic links match, and no files are known or one of them is a link now."""
    if listing.files or set(listing.left_out) != {LINK}:
        return False
    return not known or any(file.path in listing.links for file in known)


def _only_links_error(path: Path, listing: Listing) -> SourceError:
    """Return the error for a source in which only symbolic links match, which are not followed."""
    count, first = listing.left_out.pop(LINK)
    return SourceError(
        f"source.path {path}: there is nothing but {_counted(count, LINK)}, such as {first!a}, and links are not "
        "followed, so there is nothing to read.",
        hint=f"If it is meant to be read, {FOLLOW_LINKS}; otherwise remove it or correct source.path.",
    )


def changed_file_error(file: SourceFile, status: os.stat_result) -> SourceError:
    """Return the error for a delivered file that was changed or replaced.

    :param file: the file as it was recorded
    :param status: status of the file that has this name now
    """
    was, now = FileIdentity.parse(file.etag), FileIdentity.of(status)
    if now.inode != was.inode:
        change = "it was replaced by another file"
    elif now.size > was.size:
        change = "it was appended to or overwritten"
    elif now.size < was.size:
        change = "it was truncated or overwritten"
    else:
        change = "it was overwritten, or its time was set"
    path, new_name = quote(file.path), quote(_free_name(file.path))
    only_more = ""
    if now.size > was.size == file.size:  # false for Parquet, where file.size is a number of rows
        only_more = (
            f". To deliver only what was appended: tail -c +{was.size + 1} {path} > {new_name}.tmp, "
            f"mv {new_name}.tmp {new_name}, and move {path} away"
        )
    return SourceError(
        f"{file.path} changed after it was delivered: {change}. It was {was.size} bytes and is {now.size} bytes now. "
        "Its current content is not delivered.",
        position=file.base,
        hint=f"To deliver its whole current content as a new file: mv {path} {new_name}{only_more}. If it is not to be "
        "delivered, move it out of the source, or restore the old file.",
    )


def _free_name(path: str) -> str:
    old = Path(path)
    return str(old.with_name(f"{old.stem}-2{old.suffix}"))


def _notices(path: Path, listing: Listing, *, none: bool) -> list[str]:
    found = [
        f"source.path {path}: left out {_counted(count, kind)}, such as {first!a}"
        + ("; with source.follow_links: true links are followed" if kind == LINK else "")
        for kind, (count, first) in sorted(listing.left_out.items())
    ]
    if none:
        passed = f"; {listing.others} other files are there" if listing.others and is_pattern(path) else ""
        found.append(
            f"source.path {path} {'matches no file' if is_pattern(path) else 'holds no file'} so far{passed}: "
            "there is nothing to read"
        )
    return found


def _counted(count: int, kind: str) -> str:
    return f"a {kind}" if count == 1 else f"{count} {kind.replace('directory', 'directorie')}s"


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
