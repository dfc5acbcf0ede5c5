"""Public bug reports about readers of event streams: each class of mistake, by the report's own name, is not made here.

Reports about HTTP (content types, gzip, timeouts, pools) are tested with the transports.
"""

from __future__ import annotations

import pytest

from ssefold import SSEParser

from .feeding import every_cut, parse


def _data(stream: bytes) -> list[str]:
    """The data of each event, the same in every cut."""
    whole = [data for _, data, _ in parse([stream]).events]
    for pieces in every_cut(stream):
        assert [data for _, data, _ in parse(pieces).events] == whole
    return whole


def test_httpx_sse_34_u2028_ends_no_line() -> None:
    assert _data(b'data: {"t":"a\xe2\x80\xa8b"}\n\ndata: 2\n\n') == ['{"t":"a\u2028b"}', "2"]


def test_codex_lb_1010_terminal_event_with_u2029() -> None:
    stream = b'event: response.completed\ndata: {"o":"p\xe2\x80\xa9q"}\n\n'
    assert parse([stream]).events == [("response.completed", '{"o":"p\u2029q"}', "")]
    assert _data(stream) == ['{"o":"p\u2029q"}']


def test_eventsource_parser_17_crlf_over_two_reads() -> None:
    assert parse([b"data: A\r\n", b"data: B\r", b"\ndata: C\r\n", b"\r\n"]).events == [("message", "A\nB\nC", "")]
    assert _data(b"data: A\r\ndata: B\r\ndata: C\r\n\r\n") == ["A\nB\nC"]


def test_eventsource_326_mixed_line_ends() -> None:
    assert parse([b"event: e\r\ndata: x\n\n"]).events == [("e", "x", "")]


def test_litellm_16562_json_over_reads() -> None:
    pieces = [b'data: {"a":', b' 1}\n\ndata: {"b"', b": 2}\n\n"]
    assert [data for _, data, _ in parse(pieces).events] == ['{"a": 1}', '{"b": 2}']


def test_tt_studio_936_two_events_in_one_read() -> None:
    assert len(SSEParser().feed(b'data: {"a":1}\n\ndata: {"a":2}\n\n')) == 2


def test_vllm_38717_characters_over_reads() -> None:
    pieces = [b"data: \xe4\xbd", b"\xa0\xe5", b"\xa5\xbd\n\n"]
    assert parse(pieces).events == [("message", "\u4f60\u597d", "")]


def test_openmetadata_29531_x85_inside_a_character_ends_no_line() -> None:
    assert _data(b"data: \xe2\x9c\x85\n\n") == ["\u2705"]


def test_openai_python_2722_blocks_without_data() -> None:
    assert parse([b"retry: 3000\n\ndata: {}\n\n"]).events == [("message", "{}", "")]
    assert parse([b"retry: 3000\n\ndata: {}\n\n"]).reconnection_time == 3000
    assert parse([b"id: 1\ndata: {}\n\n: ping\n\ndata: {}\n\n"]).events == [("message", "{}", "1")] * 2


def test_langgraph_7915_several_data_lines() -> None:
    assert _data(b'data: {"a":\ndata: 1}\n\n') == ['{"a":\n1}']


def test_mistral_vibe_762_bare_colon() -> None:
    assert _data(b":\n\n:\n\ndata: 1\n\n") == ["1"]


def test_eventsource_parser_34_id_with_nul_is_ignored() -> None:
    assert parse([b"id: 123\nid: bad\x00id\ndata: hello\n\n"]).events == [("message", "hello", "123")]


def test_huggingface_hub_4536_no_space_after_colon() -> None:
    assert _data(b"data:{}\n\ndata:[DONE]\n\n") == ["{}", "[DONE]"]


def test_openai_node_2725_no_final_blank_line_is_reported() -> None:
    parser = SSEParser()
    stream = b'data: {"c":"a"}\n\ndata: {"finish_reason":"stop"}\n'
    assert [event.data for event in parser.feed(stream)] == ['{"c":"a"}']
    assert parser.close() is True


def test_litellm_40260_clean_end_is_told_from_a_cut_one() -> None:
    parser = SSEParser()
    assert len(parser.feed(b'data: {"c":"par"}\n\n')) == 1
    assert parser.close() is False


def test_anthropic_sdk_python_1258_error_event_after_others() -> None:
    stream = b'event: message_start\ndata: {}\n\nevent: error\ndata: {"error":{"type":"overloaded_error"}}\n\n'
    assert [event.event for event in SSEParser().feed(stream)] == ["message_start", "error"]


@pytest.mark.parametrize("read_size", [100, 65_536, 10**6])
def test_aiohttp_4453_no_bound_on_a_line_but_our_own(read_size: int) -> None:
    stream = b"data: " + b"x" * 600_000 + b"\n\n"
    pieces = [stream[n : n + read_size] for n in range(0, len(stream), read_size)]
    assert parse(pieces).events == [("message", "x" * 600_000, "")]


def test_tensorrt_llm_13952_long_json_line() -> None:
    payload = b'{"logprobs":[' + b"0," * 300_000 + b"0]}"
    stream = b"data: " + payload + b"\n\n"
    parser = SSEParser()
    events = [event for n in range(0, len(stream), 65_536) for event in parser.feed(stream[n : n + 65_536])]
    assert [event.data_bytes for event in events] == [payload]


def test_eventsource_parser_32_endless_event_is_refused() -> None:
    for pieces in ([b"data: x\n" * 100] * 100, [b"data: ", *[b"x" * 200] * 100]):
        seen = parse(pieces, max_event_size=10_000)
        assert "max_event_size=10000 bytes, which its 'data' field goes beyond" in seen.failure
