"""The object stores for the tests behave as other tests assume, and their proxy causes faults on request."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from tests.services.http_proxy import Fault, HttpProxy, Rule
from tests.services.object_store import ObjectStoreServer
from tests.services.object_stores import ObjectStores

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion

_WRITERS = 16


def _race(store: ObjectStoreServer, key: str, mode: PutMode) -> list[bytes]:
    """Let writers put one object under a condition at once; what those that were not refused have written."""
    client, ready = store.client(), Barrier(_WRITERS)

    def write(number: int) -> list[bytes]:
        ready.wait()
        try:
            obstore.put(client, key, b"%d" % number, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return []
        return [b"%d" % number]

    with ThreadPoolExecutor(_WRITERS) as pool:
        return [won for found in pool.map(write, range(_WRITERS)) for won in found]


def test_one_of_many_writers_creates_an_object(object_store: ObjectStoreServer) -> None:
    for turn in range(3):
        winners = _race(object_store, f"race/{turn}", "create")
        assert [object_store.objects("race")[f"race/{turn}"]] == winners


def test_one_of_many_writers_replaces_an_object(object_store: ObjectStoreServer) -> None:
    for turn in range(3):
        key = f"swap/{turn}"
        put = obstore.put(object_store.client(), key, b"old")
        version: UpdateVersion = {"e_tag": put["e_tag"], **({"version": put["version"]} if put["version"] else {})}
        winners = _race(object_store, key, version)
        assert [object_store.objects("swap")[key]] == winners


@pytest.fixture
def proxy(object_stores: ObjectStores) -> Iterator[HttpProxy]:
    """A proxy before versitygw."""
    with HttpProxy(object_stores.get("versitygw").client_port) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("fault", "stored", "answered"),
    [
        (Fault.ERROR, False, False),
        (Fault.SLOW_DOWN, False, False),
        (Fault.CUT, False, False),
        (Fault.LOST, True, False),
        (Fault.LOST_ERROR, True, False),
        (Fault.SLOW, True, True),
    ],
)
def test_the_proxy_answers_badly(
    object_stores: ObjectStores, proxy: HttpProxy, fault: Fault, *, stored: bool, answered: bool
) -> None:
    store = object_stores.get("versitygw")
    key = f"faults/{fault.name}"
    rule = proxy.fail(Rule(fault, method="PUT", path=key, nth=2, times=None, seconds=0.01))
    client = store.client(proxy.port, retries=0)

    obstore.put(client, key, b"first")
    try:
        obstore.put(client, key, b"second")
        told = True
    except BaseError:
        told = False

    assert told is answered
    assert store.objects("faults")[key] == (b"second" if stored else b"first")
    assert rule.struck == 1
    assert proxy.count("PUT", key) == 2


def test_the_proxy_cuts_an_answer_in_its_middle(object_stores: ObjectStores, proxy: HttpProxy) -> None:
    store = object_stores.get("versitygw")
    store.put({"faults/long": bytes(1 << 20)})
    proxy.fail(Rule(Fault.TRUNCATED, method="GET", path="faults/long", times=None))

    with pytest.raises(BaseError):
        obstore.get(store.client(proxy.port, retries=0), "faults/long").bytes()


def test_a_storm_is_the_same_each_time(object_stores: ObjectStores, proxy: HttpProxy) -> None:
    client = object_stores.get("versitygw").client(proxy.port, retries=0)
    outcomes = []
    for _ in range(2):
        proxy.calm()
        proxy.storm(7, 0.5, [Fault.ERROR, Fault.SLOW_DOWN])
        for number in range(8):
            try:
                obstore.put(client, f"storm/{number}", b"")
            except BaseError:
                continue
        outcomes.append([one.fault for one in proxy.exchanges])

    assert outcomes[0] == outcomes[1]
    assert None in outcomes[0]
    assert len(set(outcomes[0])) > 1


def test_a_store_may_ignore_conditions(object_stores: ObjectStores) -> None:
    store = object_stores.get("moto")
    with HttpProxy(store.client_port) as proxy:
        proxy.ignore_conditions()
        for data in (b"first", b"second"):
            obstore.put(store.client(proxy.port), "ignored", data, mode="create")

    assert store.objects()["ignored"] == b"second"
