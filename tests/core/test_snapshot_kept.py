"""Snapshots are safe to load: nothing in them is code, no byte can be changed, and those of older releases go on.

What the container itself refuses is in ``codec/test_container.py``, altered snapshots of drawn streams in
``test_hostile``.  The kept files are those of ``keep_snapshots``.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pytest

import ssefold
from ssefold import Accumulator, Snapshot, SnapshotError
from ssefold.adapters.rollout import RolloutSample
from tests.core.by_hand import shown
from tests.core.keep_snapshots import KEPT, outputs_after, sample, snapshots
from tests.truth.recorded import Recorded, streams

FILES = sorted(KEPT.glob("*/*.bin"))
RECORDED = {one.name: one for one in streams()}
outputs = pytest.mark.parametrize(
    "path", [path for path in FILES if path.name != "rollout.bin"], ids=lambda path: f"{path.parent.name}-{path.stem}"
)


def _of(path: Path) -> tuple[Recorded, int, int]:
    name, events, index = path.stem.rsplit(".", 2)
    return RECORDED[name], int(events), int(index)


def test_this_release_has_kept_its_own() -> None:
    assert {path.parent.name for path in FILES} >= {ssefold.__version__.partition("+")[0]}
    assert len(FILES) > 30


@outputs
def test_a_kept_snapshot_loads(path: Path) -> None:
    one, events, index = _of(path)
    data = path.read_bytes()
    kept = Snapshot.from_bytes(data)
    assert shown(kept) == shown(outputs_after(one, events)[index].snapshot())
    assert kept.to_bytes() == data, "the same state has other bytes now: raise the format's version"


@outputs
def test_a_kept_snapshot_goes_on(path: Path) -> None:
    one, events, index = _of(path)
    output = Accumulator.restore(Snapshot.from_bytes(path.read_bytes()))
    for payload in one.payloads[events:]:
        if payload.get("index", 0) == index:
            output.add(payload)
    assert shown(output) == shown(outputs_after(one, len(one.payloads))[index])


def test_a_kept_sample_loads_and_goes_on() -> None:
    for path in (path for path in FILES if path.name == "rollout.bin"):
        rollout, now = RolloutSample.from_bytes(path.read_bytes()), sample()
        for name in ("prompt_ids", "token_ids", "logprobs", "loss_mask", "text", "status", "weight_versions"):
            assert getattr(rollout, name) == getattr(now, name), name
        assert not rollout.done
        payload = rollout.next_payload()
        assert payload["input_ids"] == [7, 8, *rollout.token_ids]
        assert payload["sampling_params"]["max_new_tokens"] == 9 - len(rollout.token_ids)


def test_what_is_kept_is_what_the_code_writes() -> None:
    folder = KEPT / ssefold.__version__.partition("+")[0]
    # (A sample has an id of its own each time.)
    written = {name: data for name, data in snapshots() if name != "rollout.bin"}
    assert {name: data for name, data in written.items() if (folder / name).read_bytes() != data} == {}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_there_is_no_pickle_in_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("something is unpickled")

    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(path.read_bytes())
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    kind = RolloutSample if path.name == "rollout.bin" else Snapshot
    assert kind.from_bytes(path.read_bytes()).to_bytes() == path.read_bytes()


def test_every_byte_of_a_snapshot_is_checked() -> None:
    data = max((path.read_bytes() for path in FILES if path.name != "rollout.bin"), key=len)
    for at in range(len(data)):
        for bad in (data[:at], data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]):
            with pytest.raises(SnapshotError):
                Snapshot.from_bytes(bad)


def test_a_later_format_is_refused_by_name() -> None:
    data = bytearray(FILES[0].read_bytes())
    data[8] += 1
    data[-32:] = hashlib.sha256(data[:-32]).digest()
    with pytest.raises(SnapshotError, match="format version 2, this release reads version 1"):
        Snapshot.from_bytes(data)
