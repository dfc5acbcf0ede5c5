"""Streams and events for property tests: bytes on which a parser could go wrong, put together at random."""

from __future__ import annotations

from hypothesis import strategies as st

_TOKENS = (
    *(b"data", b"data:", b"data: ", b"event", b"event:", b"event: ", b"id", b"id:", b"id: ", b"retry:", b"retry: "),
    *(b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n", b"\n\r"),
    *(b":", b": ", b" ", b"\0", b"\t", b"x", b"y z", b"7", b"007", b"d", b"dat", b"e", b"re", b"Data: ", b"datax"),
    *(b"\xef\xbb\xbf", b"\xef", b"\xbb", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"\x1c", b"\xff", b"\xf0\x9f\x98\x80"),
    *(
        b"data: {}\n\n",
        b"data: a\n\ndata: b\n\n",
        b"event: t\ndata: v\n\n",
        b"event: \ndata: u\n\n",
        b": ping\n\n",
        b"id: 1\ndata: w\n\n",
    ),
    *(b"data: " + b"l" * 600 + b"\n\n", b"m" * 40),
)

streams = st.one_of(
    st.lists(st.sampled_from(_TOKENS), max_size=30).map(b"".join),
    st.lists(st.one_of(st.sampled_from(_TOKENS), st.binary(max_size=4)), max_size=20).map(b"".join),
    st.binary(max_size=80),
)
"""Bytes rich in line ends, colons, spaces, BOMs, NULs and field names; whole events, so that shortcuts are taken."""

short_streams = st.lists(st.sampled_from([t for t in _TOKENS if len(t) < 40]), max_size=12).map(b"".join)
"""The same for tests whose cost grows with the square of the length."""

offsets = st.lists(st.floats(0, 1), max_size=10)
"""Where to cut a stream, as parts of its length."""


def at(stream: bytes, parts: list[float]) -> list[int]:
    """The offsets for a stream."""
    return [round(part * len(stream)) for part in parts]


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_line = _text.map(lambda text: text.replace("\r", "").replace("\n", ""))

events = st.tuples(
    _text.map(lambda text: text.replace("\r", "")),
    st.none() | _line.filter(bool),
    st.none() | _line.map(lambda text: text.replace("\0", "")),
    st.none() | st.integers(0, 10**9),
)
"""What ``encode_event`` takes: data, event, id, retry."""
