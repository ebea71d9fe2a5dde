"""The files sink in an object store survives crashes, races, lost responses, and objects removed by others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import pytest

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.files.object_store.layout import ObjectLayout
from airflow_provider_ckpt.connectors.files.object_store.writer import ObjectFilesWriter
from airflow_provider_ckpt.connectors.sink_protocol import Committer, SinkContext
from airflow_provider_ckpt.connectors.storage.object_store import ObjectLocation
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError, FencedError
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.testing.lane_writer import LaneWriter
from tests.integration.connectors.batches import LEDGER, content, expected, originals, task
from tests.integration.connectors.files.object_sink_support import ObjectTarget
from tests.integration.connectors.interruptions import Killed, Step, after, before, kill, once
from tests.services.http_proxy import Fault, HttpProxy, Rule
from tests.services.object_stores import ObjectStores

STEPS = {
    "write rows": Step(ObjectFilesWriter, "_write"),
    "write receipts": Step(ReceiptChain, "_write"),
    "replace the head": Step(ObjectLocation, "swap"),
    "copy": Step(ObjectLocation, "copy_to"),
    "remove": Step(ObjectLocation, "remove"),
}


@pytest.fixture
def target(object_stores: ObjectStores) -> ObjectTarget:
    return ObjectTarget(object_stores.get("versitygw"))


@dataclass
class Run:
    """One process holding one epoch."""

    target: ObjectTarget
    epoch: int = 1
    files_may_go: bool = False

    def __post_init__(self) -> None:
        self.pipeline = self.target.pipeline(files_may_go=self.files_may_go)
        context = SinkContext(LEDGER, self.pipeline.name, self.epoch)
        self.layout = ObjectLayout.of(self.pipeline, self.target.connection, context)
        self.sink = registry.open_sink(self.pipeline, self.target.connection, context)
        self.committer = cast("Committer", registry.open_committer(self.pipeline, self.target.connection, context))
        self.context = context

    @property
    def writer(self) -> LaneWriter:
        """A lane's writer, as each wave has new ones."""
        return LaneWriter(registry.open_writer(self.pipeline, self.target.connection, self.context), originals)

    def fence(self) -> Run:
        """Take over."""
        self.sink.fence(self.epoch)
        return self

    def stage(self, *seqs: int) -> list[Outcome]:
        """Stage whole batches, as a lane does."""
        writer = self.writer
        return [writer.deliver(task(seq), content(seq)) for seq in seqs]

    def send(self, *seqs: int) -> list[Outcome]:
        """Stage and commit whole batches."""
        return list(self.committer.commit(self.stage(*seqs)))

    @property
    def receipted(self) -> list[int]:
        """Seqs of all receipts."""
        return [receipt.key.seq for receipt in self.sink.receipts({})]


class TestDeaths:
    @pytest.mark.parametrize("done", [False, True])
    @pytest.mark.parametrize("step", STEPS)
    def test_a_wave_that_dies_anywhere_is_settled_by_the_next_run(
        self, target: ObjectTarget, monkeypatch: pytest.MonkeyPatch, step: str, *, done: bool
    ) -> None:
        run = Run(target).fence()
        run.send(0)
        with monkeypatch.context() as patch:
            dies = STEPS[step]
            patch.setattr(*dies, after(dies.real, kill) if done else kill)
            with pytest.raises(Killed):
                run.send(1, 2)

        following = Run(target, epoch=2).fence()
        receipted = following.receipted
        assert target.ids() == expected(*receipted)
        following.send(*[seq for seq in (1, 2) if seq not in receipted])

        assert following.receipted == [0, 1, 2]
        assert target.ids() == expected(0, 1, 2)
        assert target.hidden("/staged/") == []

    def test_what_a_dead_run_committed_is_visible_once_its_receipt_is_read(
        self, target: ObjectTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(target).fence()
        with monkeypatch.context() as patch:
            patch.setattr(*STEPS["copy"], kill)
            with pytest.raises(Killed):
                run.send(0)
        assert target.ids() == []

        assert Run(target).receipted == [0]
        assert target.ids() == expected(0)

    def test_a_takeover_that_dies_anywhere_is_repeated(
        self, target: ObjectTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(*STEPS["copy"], kill)
            with pytest.raises(Killed):
                Run(target).fence().send(0)
        for step in ("replace the head", "copy", "remove"):
            for then in (kill, after(STEPS[step].real, kill)) if step != "remove" else (kill,):
                with monkeypatch.context() as patch:
                    patch.setattr(*STEPS[step], then)
                    with pytest.raises(Killed):
                        Run(target, epoch=2).fence()

        assert Run(target, epoch=4).fence().receipted == [0]
        assert target.ids() == expected(0)


class TestRaces:
    def test_a_commit_that_arrives_after_the_fence_is_refused(
        self, target: ObjectTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(target).fence()
        staged = run.stage(0)
        other = Run(target, epoch=2)
        replace = STEPS["replace the head"]
        monkeypatch.setattr(*replace, before(replace.real, once(other.fence)))

        with pytest.raises(FencedError) as refused:
            run.committer.commit(staged)

        assert "files#0" in str(refused.value)
        assert (other.receipted, target.ids()) == ([], [])
        assert other.send(0)[0].outcome is AttemptOutcome.DELIVERED
        assert target.ids() == expected(0)

    def test_of_two_that_take_over_at_once_the_newer_epoch_stays(
        self, target: ObjectTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        newer = Run(target, epoch=3)
        replace = STEPS["replace the head"]
        monkeypatch.setattr(*replace, before(replace.real, once(newer.fence)))

        with pytest.raises(FencedError):
            Run(target, epoch=2).fence()

        assert newer.sink.claims().epoch == 3

    def test_a_lane_that_runs_twice_delivers_once(self, target: ObjectTarget) -> None:
        run = Run(target).fence()

        first, second = run.committer.commit([*run.stage(0), *run.stage(0)])

        assert sorted([first.receipt_existed, second.receipt_existed]) == [False, True]
        assert target.ids() == expected(0)
        assert target.hidden("/staged/") == []


class TestLostAnswers:
    @pytest.fixture
    def proxy(self, target: ObjectTarget) -> Iterator[HttpProxy]:
        with HttpProxy(target.server.client_port) as proxy:
            target.connection = target.server.connection(proxy.port)
            yield proxy

    @pytest.mark.parametrize("times", [1, 2])
    @pytest.mark.parametrize("part", ["/head", "/staged/", "/receipts/", "/out/ckpt-"])
    @pytest.mark.parametrize("fault", [Fault.LOST, Fault.LOST_ERROR, Fault.CUT, Fault.ERROR, Fault.SLOW_DOWN])
    def test_of_a_request_double_and_lose_nothing(
        self, target: ObjectTarget, proxy: HttpProxy, fault: Fault, part: str, times: int
    ) -> None:
        run = Run(target).fence()
        proxy.fail(Rule(fault, method="PUT", path=part, times=times))

        outcomes = run.send(0, 1)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED] * 2
        assert Run(target, epoch=2).fence().receipted == [0, 1]
        assert target.ids() == expected(0, 1)
        assert target.hidden("/staged/") == []

    def test_of_the_fence_leave_it_raised(self, target: ObjectTarget, proxy: HttpProxy) -> None:
        proxy.fail(Rule(Fault.LOST_ERROR, method="PUT", path="/head", times=1))

        run = Run(target, epoch=2).fence()

        assert run.sink.claims().epoch == 2
        assert run.send(0)[0].outcome is AttemptOutcome.DELIVERED


class TestRemovedObjects:
    def test_what_is_cleaned_before_it_was_published_is_never_called_delivered(
        self, target: ObjectTarget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(target).fence()
        copy = STEPS["copy"]

        def clean() -> None:
            target.remove(*target.hidden("/staged/"))

        monkeypatch.setattr(*copy, before(copy.real, once(clean)))
        (outcome,) = run.send(0)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert "was removed as soon as it was written" in outcome.error.message
        evidence = Run(target, epoch=2).sink.claims().loss_evidence
        assert evidence is not None
        assert "gone from" in evidence
        assert Run(target).sink.batches_without_receipt([task(0).key]) == [task(0).key]

    def test_a_delivered_object_that_is_removed_is_told(self, target: ObjectTarget) -> None:
        run = Run(target).fence()
        run.send(0)
        run.send(1)
        newest = next(name for name in target.visible() if "-00000001-" in name)
        target.remove(f"{target.key}/{newest}")

        assert newest in str(Run(target, epoch=2).sink.claims().loss_evidence)
        assert Run(target, epoch=2, files_may_go=True).sink.claims().loss_evidence is None

    def test_a_head_that_was_set_back_is_told(self, target: ObjectTarget) -> None:
        run = Run(target).fence()
        old = run.layout.head.read()
        run.send(0)
        Run(target, epoch=2).fence()
        run.layout.head.write(old or b"")

        assert "was set back" in str(Run(target, epoch=3).sink.claims().loss_evidence)

    @pytest.mark.parametrize("spoil", [b"[]", b""])
    def test_a_damaged_head_is_an_error_that_says_what_to_do(self, target: ObjectTarget, spoil: bytes) -> None:
        run = Run(target).fence()
        run.send(0)
        run.layout.head.write(spoil)

        (outcome,) = run.stage(1)

        assert outcome.error is not None
        assert "head with the fence and the newest receipts is damaged" in outcome.error.message


def test_objects_of_another_kind_or_format_are_refused(target: ObjectTarget) -> None:
    target.server.put({f"{target.key}/notes.txt": b"x"})
    with pytest.raises(ConfigError, match=r"holds other objects, such as notes\.txt"):
        Run(target).sink.check()

    other = ObjectTarget(target.server)
    other.server.put({f"{other.key}/ckpt-x.csv": b"x"})
    with pytest.raises(ConfigError, match="another format"):
        Run(other).sink.check()
