"""Content encodings are undone whole, however the bytes were cut, or refused by name."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.transports._engine import undo_encoding


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACK = {"gzip": gzip.compress, "X-GZIP": gzip.compress, " deflate ": zlib.compress, "x-deflate": raw_deflate}


@given(st.binary(max_size=300), st.sampled_from(list(PACK)), st.integers(1, 400))
def test_whatever_the_cut(data: bytes, name: str, size: int) -> None:
    pack: Any = PACK[name]
    packed = pack(data)
    undo = undo_encoding(name)
    assert undo is not None
    assert b"".join(undo(packed[at : at + size]) for at in range(0, len(packed), size)) == data


@given(st.integers(1, 200))
def test_a_gzip_of_several_members(size: int) -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two")
    undo = undo_encoding("gzip")
    assert undo is not None
    assert b"".join(undo(packed[at : at + size]) for at in range(0, len(packed), size)) == b"onetwo"


@pytest.mark.parametrize("name", ["", "identity", " Identity "])
def test_nothing_to_undo(name: str) -> None:
    assert undo_encoding(name) is None


@pytest.mark.parametrize("name", ["br", "zstd", "compress", "x-compress", "gzip, gzip", "gzip,br", "rot13"])
def test_others_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"content-encoding {name!r}"):
        undo_encoding(name)


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_bytes_that_are_something_else(name: str) -> None:
    undo = undo_encoding(name)
    assert undo is not None
    with pytest.raises(ValueError, match=f"not the {name} that its content-encoding says"):
        undo(b"data: this is not compressed at all")
