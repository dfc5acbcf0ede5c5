"""JSON with orjson and without: the same payloads are taken, as the same values, and the same are refused."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ssefold.fold.payload
from ssefold import PayloadError
from ssefold.fold.payload import BadJSONError, json_backend, loads_json, parse_payload
from ssefold.transports.testing import CUMULATIVE
from tests.core.by_hand import exact, fold
from tests.core.corpus import cases
from tests.core.mutations import event, respelled, some_cases
from tests.truth.recorded import Recorded, streams

BACKENDS = ["orjson", "json"] if importlib.util.find_spec("orjson") else ["json"]
needs_both = pytest.mark.skipif(len(BACKENDS) < 2, reason="orjson is not installed: there is nothing to compare")
PARSING = (ssefold.fold.payload,)
"""Every module that asks for the parser."""


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Either parser, whatever is installed."""
    _use(request.param, monkeypatch)
    name: str = request.param
    return name


def _use(name: str, patch: pytest.MonkeyPatch) -> None:
    if name == "json":
        for module in PARSING:
            patch.setattr(module, "json_backend", lambda: loads_json)


def _outcome(data: bytes, name: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        _use(name, patch)
        try:
            return exact(parse_payload(data))
        except PayloadError as error:
            return type(error).__name__


def same(data: bytes) -> None:
    """Both parsers agree about these bytes."""
    outcomes = {name: _outcome(data, name) for name in BACKENDS}
    assert len(set(outcomes.values())) == 1, outcomes


TAKEN: dict[bytes, Any] = {
    b"{}": {},
    b' \t\r\n{"a" : [ ] }\n': {"a": []},
    b'{"a":1,"a":2}': {"a": 2},
    b'{"a":{"b":1,"b":null}}': {"a": {"b": None}},
    b'{"a":-0}': {"a": 0},
    b'{"a":-0.0}': {"a": -0.0},
    b'{"a":1e3}': {"a": 1000.0},
    b'{"a":1E-2}': {"a": 0.01},
    b'{"a":1e-400}': {"a": 0.0},
    b'{"a":5e-324}': {"a": 5e-324},
    b'{"a":1.7976931348623157e308}': {"a": 1.7976931348623157e308},
    b'{"a":9223372036854775807}': {"a": 2**63 - 1},
    b'{"a":9223372036854775808}': {"a": 2**63},
    b'{"a":18446744073709551615}': {"a": 2**64 - 1},
    b'{"a":18446744073709551616}': {"a": 2.0**64},
    b'{"a":-9223372036854775808}': {"a": -(2**63)},
    b'{"a":-9223372036854775809}': {"a": -(2.0**63)},
    b'{"a":1%s}' % (b"0" * 300): {"a": 1e300},
    b'{"a":0.%s1}' % (b"0" * 5000): {"a": 0.0},
    b'{"a":"\\ud83d\\ude00"}': {"a": "😀"},
    b'{"a":"\\u0000\\u001f\\/\\b\\f\\n\\r\\t"}': {"a": "\x00\x1f/\b\f\n\r\t"},
    '{"ключ":"\u2028\u2029\u0085\ufeff\x7f"}'.encode(): {"ключ": "\u2028\u2029\u0085\ufeff\x7f"},
    b'{"\\u0061":1}': {"a": 1},
    b'{"":""}': {"": ""},
}
REFUSED = (
    b"", b" ", b"{", b"}", b"{]", b'{"a"}', b'{"a":}', b'{"a":1,}', b"{,}", b"{'a':1}", b"{a:1}", b'{"a":1}{}',
    b'{"a":1} x',
    b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}', b'{"a":1e}', b'{"a":0x1}', b'{"a":1_0}', b'{"a":--1}',
    b'{"a":-}',
    b'{"a":NaN}', b'{"a":nan}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":inf}', b'{"a":1e999}', b'{"a":-1e999}',
    b'{"a":%s}' % (b"9" * 400), b'{"a":%s}' % (b"9" * 5000), b'{"a":True}', b'{"a":None}', b'{"a":tru}',
    b'{"a":undefined}',
    b'{"a":"\x01"}', b'{"a":"\n"}', b'{"a":"\t"}', b'{"a":"\\x41"}', b'{"a":"\\u12"}', b'{"a":"\\', b'{"a":"',
    b'{"a":"\\ud800"}', b'{"a":"\\udc00"}', b'{"a":"\\ud83d\\ud83d"}', b'{"\\ud800":1}', b'{"a":["\\udfff"]}',
    b'{"a":"\\ud83dx\\ude00"}', b'{"a":"\xff"}', b'{"a":"\xc3"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc0\x80"}',
    b'{"a":"\xf4\x90\x80\x80"}', b'\xef\xbb\xbf{"a":1}', b'{"a":1}\xef\xbb\xbf', b'{"a":\xc2\xa01}', b"{}\x00",
    b"\x00{}",
    '{"a":1}'.encode("utf-16"), '{"a":1}'.encode("utf-32"), b'{"a":[}', b'{"a":[1 2]}', b'{"a" 1}', b"{/**/}",
    b'{"a":1}//',
    b'{"a":\x0b1}', b'{"a":\x0c1}', b"[DONE]", b"nonsense", b"[" * 100_000, b'{"a":' * 100_000,
    b"[" * 3000 + b"]" * 3000,
)  # fmt: skip
NO_OBJECT = (b"[]", b"1", b"null", b'"x"', b"true", b"-0.5", b"[[1]]")


@pytest.mark.parametrize("data", TAKEN, ids=lambda data: repr(data[:30]))
def test_taken(data: bytes, backend: str) -> None:
    assert exact(parse_payload(data)) == exact(TAKEN[data])


@pytest.mark.parametrize("data", REFUSED, ids=lambda data: repr(data[:30]))
def test_refused(data: bytes, backend: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse_payload(data)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("data", NO_OBJECT)
def test_json_but_no_object(data: bytes, backend: str) -> None:
    with pytest.raises(PayloadError, match="must be a JSON object") as caught:
        parse_payload(data)
    assert not isinstance(caught.value, BadJSONError)


@pytest.mark.parametrize("depth", [10, 190, 199, 200, 201, 202, 210, 500, 1000, 1023, 1024, 1025, 2000, 20_000])
@pytest.mark.parametrize("brackets", [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_depth(depth: int, brackets: tuple[bytes, bytes]) -> None:
    opening, closing = brackets
    same(b'{"a":' + opening * depth + b"1" + closing * depth + b"}")


@given(st.floats(), st.integers(), st.text())
@example(2.2250738585072014e-308, 2**64, "\ud800")
@example(1e23, -(2**63) - 1, "\u2028")
@example(9007199254740993.0, 10**400, "")
def test_values(number: float, integer: int, text: str) -> None:
    for value in (number, integer, text, [number, {text: integer}]):
        data = json.dumps({"a": value}).encode()
        same(data)
        if "\\u" not in data.decode() and math.isfinite(number):
            same(json.dumps({"a": value}, ensure_ascii=False).encode("utf-8", "surrogatepass"))


@given(st.from_regex(r"-?[0-9]{0,25}(\.[0-9]{0,25})?([eE][-+]?[0-9]{0,4})?", fullmatch=True))
def test_spellings_of_numbers(number: str) -> None:
    same(b'{"a":%s}' % number.encode())
    same(b'{"a":[%s,%s]}' % (number.encode(), number.encode()))


@given(st.binary(max_size=30))
def test_any_bytes(data: bytes) -> None:
    same(data)
    same(b'{"a":"' + data + b'"}')
    same(b'{"a":' + data + b"}")


@given(st.data())
def test_mutated_payloads(data: st.DataObject) -> None:
    case = data.draw(some_cases("scored", "rich", "plain"))
    for payload in data.draw(respelled(case.body.events)):
        if payload not in case.body.events:
            same(payload[6:-2])


ODD_SCALARS = (
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e308", "1e-999", "-0", "-0.0", "0", "1", "-1", "1.0", "1E0",
    "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616", "9" * 309, "9" * 5000,
    "-9223372036854775808", "-9223372036854775809", "null", "true", "nul", '"a"', '""', '"\\ud83d\\ude00"', '"\\u0000"',
    '"\\x"', '"\\ud800"', '"\\ud83d"', '"\\ude00\\ud83d"', '"\u2028"', "1_0", "0.1e", ".5", "+1", "01",
)  # fmt: skip
"""JSON texts on which parsers are known to differ, and some that are none."""
KEYS = st.sampled_from(('"a"', '"\\ud800"', '"b"', '"\\u0061"', '""', "a", "1"))


def _texts(scalars: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Texts that look like JSON, with keys that come twice, and once in an escaped spelling."""
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]")
            | st.lists(st.tuples(KEYS, inner).map(":".join), max_size=4).map(lambda items: f"{{{','.join(items)}}}")
        ),
        max_leaves=6,
    )


@given(_texts(st.sampled_from(ODD_SCALARS)), _texts(st.sampled_from(ODD_SCALARS)))
def test_texts_on_which_parsers_differ(one: str, other: str) -> None:
    same(one.encode())
    same(f'{{"a":{one},"a":{other}}}'.encode())


FIELDS = ("text", "output_ids", "meta_info", "index", "error", "completion_tokens", "output_token_logprobs",
          "output_token_logprobs_length", "finish_reason", "x", "routed_experts")  # fmt: skip


@needs_both
@given(st.data())
def test_updates_do_not_depend_on_what_is_installed(data: st.DataObject) -> None:
    """A stream in which fields are written once more, with other values: both fold it alike, or refuse it alike."""
    events = list(data.draw(some_cases("scored", "rich", "plain", "intervals")).body.events)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(events) - 1))
        text = f'"{data.draw(st.sampled_from(FIELDS))}":{data.draw(st.sampled_from(ODD_SCALARS))}'.encode()
        where = data.draw(st.sampled_from((b"{", b'"meta_info":{')))
        events[at] = events[at].replace(where, where + text + b",", 1)
        if data.draw(st.booleans()):  # behind what is there: then it is the one that counts
            events[at] = events[at].replace(b"}\n\n", b"," + text + b"}\n\n")
    body = [b"".join(events)] if data.draw(st.booleans()) else events
    _folds_alike(body)


@needs_both
@pytest.mark.parametrize("one", streams(), ids=lambda one: one.name)
def test_streams_do_not_depend_on_what_is_installed(one: Recorded) -> None:
    _folds_alike([one.body])


def _folds_alike(reads: list[bytes]) -> None:
    with_orjson = fold(reads).told
    with pytest.MonkeyPatch.context() as patch:
        _use("json", patch)
        without = fold(reads).told
    assert (without["error"] is None) == (with_orjson["error"] is None)
    if with_orjson["error"] is not None:  # each parser has words of its own
        assert without["error"][0] is with_orjson["error"][0]
    assert without | {"error": None} == with_orjson | {"error": None}


def test_the_standard_library_serves_where_orjson_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    json_backend.cache_clear()
    try:
        monkeypatch.setitem(sys.modules, "orjson", None)
        assert json_backend() is loads_json
    finally:
        json_backend.cache_clear()
    monkeypatch.undo()
    assert (json_backend() is loads_json) == (BACKENDS == ["json"])


def test_what_is_skipped_is_only_what_is_no_json(backend: str) -> None:
    good = cases(CUMULATIVE)[0].body.events
    folded = fold([event(b"nonsense"), good[0], event(b'{"a":1e999}'), *good[1:]], on_bad_json="skip")
    assert folded.error is None
    assert folded.decoder.skipped == 2
    refused = fold([good[0], event(b"[]"), *good[1:]], on_bad_json="skip")
    assert isinstance(refused.error, PayloadError)
    assert refused.decoder.skipped == 0
