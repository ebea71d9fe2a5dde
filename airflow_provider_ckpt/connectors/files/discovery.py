"""Discover source files: put new files in order, and detect delivered files that changed or are missing.

A file must be complete when it appears under its final name: write it elsewhere or as ``name.tmp``, then rename it. A
file that changes after it was recorded is an error, not new data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from airflow_provider_ckpt.connectors.files.found_files import FoundFile, Listing
from airflow_provider_ckpt.connectors.files.recorded_file import FOLLOW_LINKS, LINK
from airflow_provider_ckpt.connectors.source_plan import SourceFile
from airflow_provider_ckpt.core.errors import CkptError, SourceError


@dataclass(frozen=True, slots=True)
class Discovery:
    """Result of a discovery: the files of a source that are new, missing or refused.

    :param new: files that are not recorded yet, oldest first; their positions follow those of the recorded files
    :param gone: recorded files that were delivered and no longer exist
    :param refused: errors for delivered files that changed, and for paths that could not be listed or recorded
    :param notices: warnings about probable mistakes, one sentence each
    :param unchanged: paths of recorded files that were found unchanged; without files that the discovery did not
        compare with their records, and without local files
    """

    new: Sequence[SourceFile]
    gone: Sequence[SourceFile] = ()
    refused: Sequence[CkptError] = ()
    notices: Sequence[str] = field(default=())
    unchanged: AbstractSet[str] = frozenset()


def discover(
    path: str,
    listing: Listing,
    known: Sequence[SourceFile],
    changed: Callable[[SourceFile, FoundFile], SourceError | None],
    *,
    delivered: int = 0,
    checked: Sequence[SourceFile] = (),
) -> Discovery:
    """Compare the files of a source with those that were discovered before, and assign positions to the new files.

    :param path: directory, pattern or file, for messages
    :param listing: the files that exist; known files may be left out if they are not to be checked
    :param known: all files discovered before, in order
    :param changed: function that returns the error for a delivered file that has another etag now; None if the file
        counts as an unchanged copy
    :param delivered: end of the delivered positions: all positions before it have a verdict
    :param checked: the known files to check; the listing must contain them if they exist. Other known files appear
        neither in ``gone`` nor in ``refused`` of the result
    """
    refused: list[CkptError] = [*listing.refused]
    only_links = _only_links(listing, known)
    if only_links:
        refused.append(_only_links_error(path, listing))
    missing, others, moved = _check_delivered(listing, checked, delivered, changed)
    refused += others
    found: list[tuple[int, str, FoundFile]] = []
    for name, file in listing.files.items():
        if _is_utf8(name):
            found.append((file.time, name, file))
        else:
            message = f"the name of file {name!a} is not UTF-8, so the ledger cannot record it."
            refused.append(SourceError(message, hint="Rename the file."))
    new = []
    base = known[-1].base + known[-1].size if known else 0
    for ordinal, (_, name, file) in enumerate(sorted(found, key=lambda item: item[:2]), start=len(known)):
        new.append(SourceFile(ordinal, name, base, file.size, file.etag))
        base += file.size
    notices = _notices(path, listing, none=not known and not new and not only_links)
    if moved:
        notices.append(
            f"source.path {path}: {moved} delivered files were replaced by other files of the same sizes and times; "
            "they are treated as copies"
        )
    return Discovery(new, missing, refused, notices)


def _check_delivered(
    listing: Listing,
    known: Sequence[SourceFile],
    delivered: int,
    changed: Callable[[SourceFile, FoundFile], SourceError | None],
) -> tuple[list[SourceFile], list[SourceError], int]:
    """Remove the known files from the listing, and check that the delivered files are as they were recorded.

    :param listing: the files that exist; the known files are removed from it
    :param known: files discovered before, in order
    :param delivered: end of the delivered positions
    :param changed: as for :func:`discover`
    :return: delivered files that no longer exist, errors for those that changed, and the number of delivered files that
        were replaced by files of the same size and time
    """
    missing: list[SourceFile] = []
    refused: list[SourceError] = []
    moved = 0
    for file in known:
        found = listing.files.pop(file.path, None)
        if file.base + file.size > delivered:
            continue
        if found is None:
            if (
                file.path not in listing.unchanged and file.path not in listing.links
            ):  # links have their own notice or error
                missing.append(file)
        elif found.etag != file.etag:
            error = changed(file, found)
            if error is None:
                moved += 1
            else:
                refused.append(error)
    return missing, refused, moved


def _only_links(listing: Listing, known: Sequence[SourceFile]) -> bool:
    """Return whether discovery must fail because only symbolic links match the source's path.

    The result is True if no file is known, or if a link has the path of a known file. It is False if all known files
    were removed and the links have other names.

    :param listing: the result of listing the source
    :param known: all files discovered before
    """
    if listing.files or set(listing.left_out) != {LINK}:
        return False
    return not known or any(file.path in listing.links for file in known)


def _only_links_error(path: str, listing: Listing) -> SourceError:
    """Return the error for a source whose directory or pattern matches only symbolic links, which are not followed.

    :param path: ``source.path``, for the message
    :param listing: the result of listing the source; the links are removed from its ``left_out``, so that no
        warning counts them as well
    """
    count, first = listing.left_out.pop(LINK)
    return SourceError(
        f"source.path {path}: there is nothing but {_counted(count, LINK)}, such as {first!a}, and links are not "
        "followed, so there is nothing to read.",
        hint=f"If it is meant to be read, {FOLLOW_LINKS}; otherwise remove it or correct source.path.",
    )


def _notices(path: str, listing: Listing, *, none: bool) -> list[str]:
    found = [
        f"source.path {path}: left out {_counted(count, kind)}, such as {first!a}"
        + ("; with source.follow_links: true links are followed" if kind == LINK else "")
        for kind, (count, first) in sorted(listing.left_out.items())
    ]
    if none:
        passed = f"; {listing.others} other files are there" if listing.others and listing.pattern else ""
        found.append(
            f"source.path {path} {'matches no file' if listing.pattern else 'holds no file'} so far{passed}: "
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
