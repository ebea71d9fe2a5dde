"""Locations behave as their interface promises, on the local file system and in each kind of object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import IO
from uuid import uuid4

import pytest

from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.core.errors import ConfigError, IoError
from tests.services.http_proxy import Fault, HttpProxy, Rule
from tests.services.object_store import ObjectStoreServer
from tests.services.object_stores import ObjectStores
from tests.services.s3 import S3Server

_NAMES = ("plain.json", "a b=c,d+e@f", "%2Fquoted%41", "ü", "[1]")
_LARGE = 17 << 20
"""Bytes of a file that is put in several parts."""


@pytest.fixture(params=["local", *ObjectStores.names()])
def root(request: pytest.FixtureRequest, object_stores: ObjectStores, tmp_path: Path) -> Location:
    """A directory that does not exist yet, of each kind in turn."""
    if request.param == "local":
        return open_location(str(tmp_path / "root"), "sink.path")
    return _in_store(object_stores.get(request.param))


def _in_store(store: ObjectStoreServer, port: int | None = None) -> Location:
    return open_location(store.url(f"roots/{uuid4().hex}"), "sink.path", store.connection(port))


def test_a_missing_file_is_empty_in_every_way(root: Location) -> None:
    missing = root / "sub/missing"

    missing.remove()
    missing.flush()

    assert missing.read() is None
    assert missing.size() is None
    assert list(root.names()) == []
    assert dict(root.sizes()) == {}


def test_a_written_file_is_read_back(root: Location) -> None:
    file = root / "sub/file"
    for data in (b"first", b"", b"second" * 1000):
        file.write(data)
        file.flush()

        assert file.read() == data
        assert file.size() == len(data)
    file.remove()
    assert file.read() is None


def test_a_directory_lists_what_is_directly_in_it(root: Location) -> None:
    for name in _NAMES:
        (root / name).write(name.encode())
        (root / f"below/{name}/deeper").write(b"1")

    assert set(root.names()) == {*_NAMES, "below"}
    assert dict(root.sizes()) == {name: len(name.encode()) for name in _NAMES}
    assert set((root / "below").names()) == set(_NAMES)
    assert [(root / name).read() for name in _NAMES] == [name.encode() for name in _NAMES]


def test_a_path_has_parts(root: Location) -> None:
    file = root / "sub/file"

    assert (file.name, file.parent.name, file.sibling("other").name) == ("file", "sub", "other")
    assert file.parent == root / "sub"
    assert file.sibling("other") == root / "sub" / "other"
    assert root.resolve("sub/file") == root.resolve(file.uri) == file
    assert str(file) == str(root) + "/sub/file"


def test_an_exclusive_write_keeps_what_is_there(root: Location) -> None:
    file = root / "file"
    file.write(b"mine", exclusive=True)

    with pytest.raises(IoError, match="exist"):
        file.write(b"yours", exclusive=True)

    assert file.read() == b"mine"


def test_one_of_many_exclusive_writers_wins(root: Location) -> None:
    file, ready = root / "file", Barrier(16)
    file.sibling("other").write(b"1")

    def write(number: int) -> bytes | None:
        ready.wait()
        try:
            file.write(b"%d" % number, exclusive=True)
        except IoError:
            return None
        return b"%d" % number

    with ThreadPoolExecutor(16) as pool:
        winners = [found for found in pool.map(write, range(16)) if found is not None]

    assert [file.read()] == winners


@pytest.mark.parametrize("size", [0, 10, _LARGE])
def test_a_created_file_exists_as_a_whole(root: Location, size: int) -> None:
    file = root / "sub/file"
    with file.create() as handle:
        handle.write(bytes(size // 2))
        handle.write(b"\1" * (size - size // 2))

    assert file.read() == bytes(size // 2) + b"\1" * (size - size // 2)


def test_a_file_whose_creation_failed_does_not_exist(root: Location) -> None:
    file = root / "sub/file"
    with pytest.raises(RuntimeError), file.create() as handle:
        _write_half(handle)

    assert file.read() is None


def test_checking_a_directory_leaves_nothing_behind(root: Location) -> None:
    (root / "file").write(b"1")

    root.check_writable("sink.path")

    assert list(root.names()) == ["file"]


def _create(file: Location, data: bytes) -> None:
    with file.create() as handle:
        handle.write(data)


def _write_half(handle: IO[bytes]) -> None:
    handle.write(b"half")
    raise RuntimeError("the writer failed")


@pytest.fixture
def proxy(object_store: ObjectStoreServer) -> Iterator[HttpProxy]:
    """A proxy before each kind of object store in turn."""
    with HttpProxy(object_store.client_port) as proxy:
        yield proxy


@pytest.fixture
def broken(object_store: ObjectStoreServer, proxy: HttpProxy) -> Location:
    """A directory in each kind of object store in turn, by way of the proxy."""
    return _in_store(object_store, proxy.port)


def _failure(action: Callable[[], object]) -> IoError | None:
    try:
        action()
    except IoError as error:
        return error
    return None


_WRITES: dict[str, Callable[[Location], None]] = {
    "write": lambda file: file.write(b"content"),
    "exclusive": lambda file: file.write(b"content", exclusive=True),
}


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.CUT, Fault.LOST, Fault.LOST_ERROR])
@pytest.mark.parametrize("kind", _WRITES)
def test_a_write_that_returns_was_done(broken: Location, proxy: HttpProxy, kind: str, fault: Fault) -> None:
    file = broken / "file"
    rule = proxy.fail(Rule(fault, method="PUT"))

    failure = _failure(lambda: _WRITES[kind](file))

    assert rule.struck == 1
    if failure is None:
        assert file.read() == b"content"
    else:
        assert failure.is_outage
        assert fault is Fault.CUT, "what the store has done counts as done"

    _WRITES[kind](file)
    assert file.read() == b"content"


def test_an_exclusive_write_whose_answer_was_lost_does_not_hide_a_loser(
    object_store: ObjectStoreServer, broken: Location, proxy: HttpProxy
) -> None:
    file = broken / "file"
    file.write(b"theirs")
    proxy.fail(Rule(Fault.LOST, method="PUT"))

    with pytest.raises(IoError):
        file.write(b"ours", exclusive=True)

    assert file.read() == b"theirs"


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.CUT, Fault.TRUNCATED])
def test_a_read_survives_a_fault(broken: Location, proxy: HttpProxy, fault: Fault) -> None:
    content = bytes(range(256)) * 4000
    (broken / "file").write(content)
    rule = proxy.fail(Rule(fault, method="GET"))

    assert (broken / "file").read() == content
    assert rule.struck == 1


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.CUT, Fault.TRUNCATED])
def test_a_list_is_whole_or_fails(broken: Location, proxy: HttpProxy, fault: Fault) -> None:
    (broken / "file").write(b"1")
    rule = proxy.fail(Rule(fault, method="GET"))

    failure = _failure(lambda: list(broken.names()))

    assert rule.struck == 1
    assert failure is None or (failure.is_outage and fault is Fault.TRUNCATED)
    assert list(broken.names()) == ["file"]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LOST_ERROR])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_large_file_is_whole_or_missing(
    object_store: ObjectStoreServer, broken: Location, proxy: HttpProxy, fault: Fault, nth: int
) -> None:
    file = broken / "file"
    rule = proxy.fail(Rule(fault, method="PUT|POST", nth=nth))

    failure = _failure(lambda: _create(file, bytes(_LARGE)))

    assert rule.struck == 1
    assert failure is None or failure.is_outage
    assert file.size() in ((_LARGE,) if failure is None else (None, _LARGE))
    if isinstance(object_store, S3Server) and nth > 1:  # else nobody knows the upload's id
        assert [key for key in object_store.uploads() if key in str(file)] == []


def test_a_store_that_ignores_conditions_is_refused(object_stores: ObjectStores) -> None:
    for name in ("moto", "fake-gcs"):
        store = object_stores.get(name)
        with HttpProxy(store.client_port) as proxy:
            proxy.ignore_conditions()
            with pytest.raises(ConfigError, match="If-None-Match of the request did not hold"):
                _in_store(store, proxy.port).check_writable("sink.path")


def test_a_check_whose_answers_are_lost_is_no_refusal(broken: Location, proxy: HttpProxy) -> None:
    proxy.fail(Rule(Fault.LOST_ERROR, method="PUT", times=2))

    broken.check_writable("sink.path")


def test_wrong_credentials_are_named_without_being_shown(object_stores: ObjectStores) -> None:
    for name in ("versitygw", "azurite"):
        store = object_stores.get(name)
        wrong = "d3Jvbmctc2VjcmV0" * 4
        root = open_location(store.url("root"), "sink.path", replace(store.connection(), password=wrong))

        with pytest.raises(ConfigError, match="Correct the credentials") as refused:
            root.check_writable("sink.path")

        assert wrong not in str(refused.value)
        with pytest.raises(IoError) as failed:
            root.read()
        assert (failed.value.recoverable, failed.value.is_outage) == (False, True)
        assert wrong not in str(failed.value)


def test_an_expired_token_is_an_error_of_credentials(object_stores: ObjectStores) -> None:
    store = object_stores.get("versitygw")
    with HttpProxy(store.client_port) as proxy:
        place = _in_store(store, proxy.port)
        proxy.fail(Rule(Fault.EXPIRED, times=None))

        for failure in (_failure(lambda: (place / "file").write(b"1")), _failure(lambda: list(place.names()))):
            assert failure is not None
            assert (failure.recoverable, failure.is_outage) == (False, True)
            assert "Correct the connection's credentials" in str(failure)


def test_a_missing_bucket_is_named(object_store: ObjectStoreServer) -> None:
    url = object_store.url().replace("//ckpt/", "//no-such-bucket/root")

    with pytest.raises(ConfigError, match="there is no bucket"):
        open_location(url, "sink.path", object_store.connection()).check_writable("sink.path")
