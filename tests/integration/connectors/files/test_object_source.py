"""The files source in object stores: objects that it discovers, replaced objects, and faults of the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import obstore
import pyarrow as pa
import pytest
from pydantic import ValidationError

from airflow_provider_ckpt.connectors.files.object_files import is_match
from airflow_provider_ckpt.connectors.files.source import FilesSource
from airflow_provider_ckpt.connectors.outputs import WrittenFiles
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.storage.object_reading import list_in_parts, list_objects
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from airflow_provider_ckpt.connectors.storage.open_location import open_location
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, IoError, SourceError
from tests.integration.connectors.files.files_support import lines, pipeline
from tests.integration.connectors.files.object_source_support import Inbox, parquet
from tests.services.http_proxy import Fault, HttpProxy, Rule
from tests.services.object_store import ObjectStoreServer
from tests.services.object_stores import ObjectStores
from tests.services.s3 import S3Server

_BLOCK = 8 << 20


@pytest.fixture
def store(object_stores: ObjectStores) -> ObjectStoreServer:
    """One object store, for what does not depend on its kind."""
    return object_stores.get("versitygw")


@pytest.fixture
def proxy(store: ObjectStoreServer) -> Iterator[HttpProxy]:
    """A proxy before it."""
    with HttpProxy(store.client_port) as proxy:
        yield proxy


class TestDiscovery:
    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("", {"a.jsonl", "b.txt"}),
            ("*.jsonl", {"a.jsonl"}),
            ("**/*.jsonl", {"a.jsonl", "day=1/c.jsonl", "day=2/x/d.jsonl"}),
            ("day=*/*.jsonl", {"day=1/c.jsonl"}),
            ("day=[2-9]/**", {"day=2/x/d.jsonl"}),
            ("day=1/c.jsonl", {"day=1/c.jsonl"}),
            ("day=1", {"day=1/c.jsonl"}),
        ],
    )
    def test_what_matches_is_found(self, object_store: ObjectStoreServer, pattern: str, expected: set[str]) -> None:
        inbox = Inbox(object_store, pattern)
        unread = {"_SUCCESS": b"1", ".hidden": b"1", "e.jsonl.tmp": b"1", "_x/f.jsonl": b"1", "empty.jsonl": b""}
        read = ("a.jsonl", "b.txt", "day=1/c.jsonl", "day=2/x/d.jsonl")
        inbox.put({**unread, **{name: lines(1, 1) for name in read}})

        inbox.plan()

        assert set(inbox.names()) == expected

    def test_names_may_hold_any_characters(self, object_store: ObjectStoreServer) -> None:
        names = ["a b+c=d,e@f.jsonl", "100%41.jsonl", "ü#'~.jsonl"]
        inbox = Inbox(object_store, "*.jsonl")
        inbox.put({name: lines(number, 1) for number, name in enumerate(names)})

        plan = inbox.plan()

        assert set(inbox.names()) == set(names)
        assert len(inbox.read(inbox.tasks(plan))) == 3

    def test_a_key_that_cannot_be_named_is_refused(self, object_stores: ObjectStores) -> None:
        store = object_stores.get("moto")
        assert isinstance(store, S3Server)
        inbox = Inbox(store)
        odd = {"Bucket": "ckpt", "Key": f"{inbox.prefix}/../x"}
        store.boto().put_object(**odd, Body=b"1")

        with pytest.raises(ConfigError, match="a key that cannot be read"):
            inbox.plan()
        store.boto().delete_object(**odd)

    def test_many_objects_are_listed_in_pages(self, store: ObjectStoreServer, proxy: HttpProxy) -> None:
        inbox = Inbox(store, port=proxy.port)
        _fill(inbox, range(2500))

        assert [file.path for file in inbox.plan().files] == [inbox.url(f"{number:06d}") for number in range(2500)]
        assert proxy.count("GET", "list-type") == 3

    def test_a_run_does_not_ask_again_for_objects_that_it_has_listed(
        self, store: ObjectStoreServer, proxy: HttpProxy
    ) -> None:
        inbox = Inbox(store, port=proxy.port)
        inbox.put({f"{number}.jsonl": lines(number, 1) for number in range(9)})
        first, later = inbox.source, inbox.source
        inbox.plan()

        for source in (first, later):
            proxy.calm()
            for at in range(8):
                request = PlanRequest([RangeToPlan("files", inbox.files[at].base)], None, 1, inbox.files)
                assert [batch.range.start for batch in source.plan(request).batches] == [inbox.files[at].base]
            assert proxy.count("HEAD", "jsonl") == 0

    def test_an_object_that_was_replaced_before_a_run_is_planned_as_lost(self, store: ObjectStoreServer) -> None:
        inbox = Inbox(store)
        inbox.put({"a.jsonl": lines(1, 1), "b.jsonl": lines(2, 1)})
        inbox.plan()
        inbox.put({"a.jsonl": lines(1, 2)})

        plan = inbox.source.plan(PlanRequest([RangeToPlan("files", 0)], None, 10**9, inbox.files))

        assert [batch.expired for batch in plan.batches] == [True, False]

    def test_a_prefix_of_many_known_keys_is_listed_in_parts(self, store: ObjectStoreServer, proxy: HttpProxy) -> None:
        inbox = Inbox(store, port=proxy.port)
        _fill(inbox, range(0, 22_000, 2))
        inbox.plan()
        proxy.calm()
        new = [1, 10_999, 11_001, 30_000]
        _fill(inbox, new)

        assert [file.path for file in inbox.plan().files] == [inbox.url(f"{number:06d}") for number in new]
        assert proxy.count("GET", "list-type.*start-after|start-after.*list-type")
        assert proxy.count("GET", "list-type") <= 11 + 2

    def test_parts_of_a_listing_are_all_of_it(self, store: ObjectStoreServer) -> None:
        inbox = Inbox(store)
        _fill(inbox, range(11_000))
        directory = open_location(store.url(inbox.prefix), "source.path", inbox.connection)
        assert isinstance(directory, ObjectLocation)
        keys = [item.key for item in list_objects(directory)]

        assert len(keys) == 11_000
        assert [item.key for item in list_in_parts(directory, keys)] == keys

    def test_a_store_that_lists_in_another_order_is_listed_as_a_whole(
        self, store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inbox = Inbox(store)
        _fill(inbox, range(0, 22_000, 2))
        inbox.plan()
        _fill(inbox, [1])
        listed = obstore.list
        monkeypatch.setattr(obstore, "list", lambda *args, **options: [list(listed(*args, **options).collect())[::-1]])

        assert [file.path for file in inbox.plan().files] == [inbox.url("000001")]

    def test_growing_names_are_listed_from_the_newest(self, store: ObjectStoreServer, proxy: HttpProxy) -> None:
        inbox = Inbox(store, port=proxy.port, names_grow=True)
        _fill(inbox, range(0, 6000, 2))
        inbox.plan()
        proxy.calm()
        _fill(inbox, [5001, 6001, 6002])

        assert [file.path for file in inbox.plan().files] == [inbox.url(f"00{n}") for n in (5001, 6001, 6002)]
        assert proxy.count("GET", "list-type") <= 2

    def test_a_store_that_lists_from_its_first_key_gives_nothing_twice(
        self, store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inbox = Inbox(store, names_grow=True)
        _fill(inbox, range(1200))
        inbox.plan()
        listed = obstore.list
        monkeypatch.setattr(obstore, "list", lambda *args, offset, **options: listed(*args, **options))

        assert not inbox.plan().files

    def test_waves_of_a_run_do_not_list_everything_again(self, store: ObjectStoreServer, proxy: HttpProxy) -> None:
        inbox = Inbox(store, port=proxy.port)
        _fill(inbox, range(4000))
        source = inbox.source
        inbox.plan(source)
        proxy.calm()
        _fill(inbox, [4000])

        assert [file.path for file in inbox.plan(source).files] == [inbox.url("004000")]
        assert proxy.count("GET", "list-type") <= 2

    def test_a_new_file_of_lines_costs_no_request_before_it_is_read(
        self, store: ObjectStoreServer, proxy: HttpProxy
    ) -> None:
        inbox = Inbox(store, "*.jsonl", port=proxy.port)
        inbox.put({f"{number}.jsonl": lines(number, 1) for number in range(9)})

        tasks = inbox.tasks(inbox.plan())

        assert (proxy.count("GET", "list-type"), proxy.count("GET", "jsonl$"), proxy.count("HEAD")) == (1, 1, 9)
        proxy.calm()
        inbox.read(tasks)
        assert (proxy.count("GET", "jsonl$"), proxy.count()) == (9, 9)


def _fill(inbox: Inbox, numbers: range | list[int]) -> None:
    """Put objects into the directories in which versitygw keeps them, which takes a fraction of the time."""
    data = inbox.store.home / "data" / "ckpt" / inbox.prefix
    data.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (data / f"{number:06d}").write_bytes(b"{}\n")
        meta = inbox.store.home / "meta" / "ckpt" / inbox.prefix / f"{number:06d}" / "meta"
        meta.mkdir(parents=True)
        (meta / "etag").write_text('"8a80554c91d9fca8acb82f023de02f11"')


class TestReplacedObject:
    def test_before_its_delivery_names_pipeline_batch_and_position(self, object_store: ObjectStoreServer) -> None:
        inbox = Inbox(object_store)
        inbox.put({"a": lines(0, 5), "b": lines(5, 5)})
        plan = inbox.plan()
        inbox.put({"b": lines(1, 5)})

        with pytest.raises(SourceError, match="b was replaced after it was discovered: recorded 50 bytes") as error:
            inbox.tasks(plan)

        assert (error.value.pipeline, error.value.batch, error.value.position) == ("inbox", "files#1", 50)

    def test_the_first_of_many_that_were_replaced_is_named(self, store: ObjectStoreServer) -> None:
        inbox = Inbox(store)
        inbox.put({f"{number:02d}": lines(number, 1) for number in range(40)})
        plan = inbox.plan()
        inbox.put({f"{number:02d}": lines(number + 1, 1) for number in (39, 33, 17)})

        with pytest.raises(SourceError, match="17 was replaced after it was discovered") as error:
            inbox.tasks(plan)

        assert (error.value.batch, error.value.position) == ("files#17", inbox.files[17].base)

    def test_after_its_delivery_is_an_error_and_others_are_delivered(self, object_store: ObjectStoreServer) -> None:
        inbox = Inbox(object_store)
        inbox.put({"a": lines(0, 5)})
        inbox.plan()
        inbox.put({"a": lines(1, 5), "b": lines(5, 5)})

        plan = inbox.plan(committed=50)

        (refused,) = plan.refused
        assert "a was replaced after it was delivered" in str(refused)
        assert refused.position == 0
        assert inbox.names() == ["a", "b"]

    def test_while_it_is_read_never_gives_a_mixture(self, object_store: ObjectStoreServer) -> None:
        inbox = Inbox(object_store)
        old, new = b'{"v": "old"}\n' * 700_000, b'{"v": "new"}\n' * 700_000
        inbox.put({"a": old})
        tasks = inbox.tasks(inbox.plan())
        records = inbox.reader().read(replace(tasks[0], detail={"segments": [_all_of(inbox, len(old))]}))
        next(records)
        inbox.put({"a": new})

        with pytest.raises(SourceError, match="a was replaced after it was discovered"):
            list(records)

    def test_is_noticed_in_a_store_that_ignores_conditions(self, object_stores: ObjectStores) -> None:
        store = object_stores.get("moto")
        with HttpProxy(store.client_port) as proxy:
            inbox = Inbox(store, port=proxy.port)
            inbox.put({"a": lines(0, 5)})
            tasks = inbox.tasks(inbox.plan())
            inbox.put({"a": lines(1, 5)})
            proxy.ignore_conditions()

            with pytest.raises(SourceError, match="a was replaced"):
                inbox.read(tasks)

    def test_among_many_delivered_ones_is_the_only_error_beside_the_missing_ones(
        self, store: ObjectStoreServer
    ) -> None:
        inbox = Inbox(store)
        _fill(inbox, range(12_000))
        inbox.plan()
        end = inbox.files[-1].base + inbox.files[-1].size
        inbox.put({"007000": lines(1, 2)})
        obstore.delete(store.client(), [f"{inbox.prefix}/{number:06d}" for number in range(11_000, 11_100)])

        plan = inbox.plan(committed=end)

        assert [error.position for error in plan.refused] == [inbox.files[7000].base]
        assert any("100 delivered files are not there any more" in notice for notice in plan.notices)
        assert not plan.files

    def test_with_the_same_content_is_no_change_in_s3(self, store: ObjectStoreServer) -> None:
        inbox = Inbox(store)
        inbox.put({"a": lines(0, 5)})
        tasks = inbox.tasks(inbox.plan())
        inbox.put({"a": lines(0, 5)})

        assert len(inbox.read(tasks)) == 5
        assert not inbox.plan(committed=50).refused

    def test_that_is_gone_is_an_expired_batch_or_a_notice(self, object_store: ObjectStoreServer) -> None:
        inbox = Inbox(object_store)
        inbox.put({"a": lines(0, 5), "b": lines(5, 5)})
        plan = inbox.plan()
        obstore.delete(inbox.store.client(), f"{inbox.prefix}/a")

        with pytest.raises(SourceError, match=r"a is gone.* airflow ckpt skip inbox 'files#0'"):
            inbox.tasks(plan)
        assert any("1 delivered file is not there any more" in notice for notice in inbox.plan(committed=50).notices)


def _all_of(inbox: Inbox, size: int) -> dict[str, object]:
    (file,) = inbox.files
    return {"path": file.path, "base": 0, "etag": file.etag, "start": 0, "end": size}


class TestReading:
    @pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.CUT, Fault.TRUNCATED, Fault.SLOW])
    def test_survives_faults(self, object_store: ObjectStoreServer, fault: Fault) -> None:
        with HttpProxy(object_store.client_port) as proxy:
            inbox = Inbox(object_store, port=proxy.port)
            inbox.put({"a": lines(0, 1000)})
            rule = proxy.fail(Rule(fault, method="GET", path="/a$", times=2, seconds=0.05))

            assert len(inbox.read(inbox.tasks(inbox.plan()))) == 1000
            assert rule.struck == 2

    def test_that_fails_for_good_is_an_outage(self, store: ObjectStoreServer) -> None:
        with HttpProxy(store.client_port) as proxy:
            inbox = Inbox(store, port=proxy.port)
            inbox.put({"a": lines(0, 10)})
            tasks = inbox.tasks(inbox.plan())
        with pytest.raises(IoError) as error:
            inbox.read(tasks)
        assert error.value.is_outage

    def test_asks_for_bounded_ranges(self, store: ObjectStoreServer, proxy: HttpProxy) -> None:
        inbox = Inbox(store, port=proxy.port)
        inbox.put({"a": b'{"text": "%s"}\n' % (b"x" * 100) * 250_000})
        tasks = inbox.tasks(inbox.plan())

        assert len(tasks) > 1
        assert sum(1 for _ in inbox.read(tasks)) == 250_000
        assert max(exchange.received for exchange in proxy.exchanges) <= _BLOCK

    def test_fetches_the_columns_of_a_row_group_together(self, store: ObjectStoreServer, proxy: HttpProxy) -> None:
        columns = {f"c{number}": pa.array(range(20_000), pa.int64()) for number in range(12)}
        inbox = Inbox(store, decode="parquet", port=proxy.port)
        inbox.put({"a": parquet(pa.table(columns), group=10_000)})
        tasks = inbox.tasks(inbox.plan())
        proxy.calm()

        reader = inbox.reader()
        rows = [batch.num_rows for task in tasks for batch in reader.read(task)]

        assert sum(rows) == 20_000
        assert proxy.count("GET", "/a$") <= 4


class TestRefusals:
    def test_a_missing_bucket_is_named(self, object_store: ObjectStoreServer) -> None:
        url = object_store.url().replace("//ckpt/", "//no-such-bucket/in")
        source = FilesSource(pipeline(url), object_store.connection())

        with pytest.raises(CkptError, match="no bucket"):
            source.check()

    def test_wrong_credentials_are_an_outage_that_names_the_url(self, store: ObjectStoreServer) -> None:
        source = FilesSource(pipeline(store.url("in")), replace(store.connection(), password="wrong" * 8))

        with pytest.raises(IoError, match=r"cannot list s3://ckpt/in: ") as error:
            source.check()

        assert not error.value.recoverable
        assert "wrong" * 8 not in str(error.value)

    @pytest.mark.parametrize("path", ["s3://bucket/a?.jsonl", "s3://bucket/a%20b", "s3://bucket/in/*.jsonl#1"])
    def test_characters_that_urls_encode_are_refused(self, path: str) -> None:
        with pytest.raises(ValidationError, match="must not contain"):
            pipeline(path)

    def test_a_directory_has_no_growing_names(self) -> None:
        with pytest.raises(ValidationError, match="names_grow is only for object stores"):
            pipeline("/data/in", names_grow=True)


@pytest.mark.parametrize(
    ("path", "directory", "nested", "found"),
    [
        ("s3://lake/in", "s3://lake/in", False, True),
        ("s3://lake/in/*.jsonl", "s3://lake/in", False, True),
        ("s3://lake/in/**/*.jsonl", "s3://lake/in/x/y", False, True),
        ("s3://lake/**", "s3://lake/in/x", False, True),
        ("s3://lake/in/x", "s3://lake/in", True, True),
        ("s3://lake/_raw/*", "s3://lake/_raw", False, True),
        ("s3://lake/in/*.csv", "s3://lake/in", False, False),
        ("s3://lake/in/*", "s3://lake/in/x", False, False),
        ("s3://lake/**/*.jsonl", "s3://lake/in/_x", False, False),
        ("s3://lake/in", "s3://sea/in", False, False),
        ("s3://lake/in", "gs://lake/in", False, False),
        ("s3://lake/in2", "s3://lake/in", True, False),
        ("/in", "s3://lake/in", False, False),
    ],
)
def test_own_output_is_recognised(path: str, directory: str, *, nested: bool, found: bool) -> None:
    output = WrittenFiles("sink.path", open_location(directory, "sink.path"), "ckpt-", ".jsonl", nested)

    assert FilesSource(pipeline(path)).reads(output) is found


def test_a_pattern_matches_components() -> None:
    assert is_match(["**", "*.jsonl"], ["a", "b", "c.jsonl"])
    assert is_match(["**", "*.jsonl"], ["c.jsonl"])
    assert not is_match(["**", "*.jsonl"], ["a", "_b", "c.jsonl"])
    assert not is_match(["*", "*.jsonl"], ["a", "b", "c.jsonl"])
    assert not is_match(["*"], ["c.part"])
