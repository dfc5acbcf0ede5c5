"""``ssefold replay``: what recorded bodies say, and how bad ones are told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from .conftest import DATA, DONE, STOP, Run, chunk, event, run_process

STREAMS = sorted((DATA / "streams").glob("*.sse"))
CAPTURES = sorted((DATA / "captures").glob("*.sse*"))


def truth_of(path: Path) -> Any:
    return json.loads(path.with_name(path.name.partition(".")[0] + ".json").read_bytes())


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_recorded_streams_come_out_as_their_truth(path: Path, run: Run) -> None:
    ran = run("replay", "--json", path)
    truth = truth_of(path)
    said = {output["index"]: output for output in ran.json["outputs"]}
    complete = bool(truth["indices"]) and all(one["complete"] for one in truth["indices"].values())
    assert ran.status == (0 if complete and truth["error"] is None else 1)
    for index, one in truth["indices"].items():
        output = said[int(index)]
        assert output["token_ids"] == one["output_ids"]
        assert output["complete"] == one["complete"]
        rows = one["output_token_logprobs"]
        assert output["logprobs"] == ([row[0] for row in rows] if rows else [])
        assert (output["text"] or "") == (one["text"] or "")


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.name)
def test_captures_replay_without_a_traceback(path: Path, run: Run) -> None:
    ran = run("replay", path)
    assert ran.status in (0, 1)
    assert ran.err.count("\n") == ran.status
    assert ran.out.startswith(str(path)[:1])


def test_a_good_stream_for_people(run: Run, data: Path) -> None:
    ran = run("replay", data / "streams" / "20_slime_replay_cumulative.sse")
    assert ran.status == 0
    assert ran.err == ""
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert lines[0].endswith("2,308 bytes, 5 events, [DONE]")
    assert lines[1:] == [
        "output 0",
        "finish stop (matched 2)",
        "tokens 5, mean logprob -0.4892",
        'text "Hello world"',
        "lanes text cumulative, output_ids cumulative, logprobs cumulative",
        "replay top-p 5 rows of 9 token ids; routed experts 44 numbers",
        "anomalies none",
    ]


def test_a_bad_stream_is_one_line_and_keeps_what_had_come(run: Run, data: Path) -> None:
    ran = run("replay", data / "streams" / "10_batch_error_event_kills_siblings.sse")
    assert ran.status == 1
    assert ran.err.count("\n") == 1
    assert "Input is too long." in ran.err
    assert "tokens     1, mean logprob" in ran.out


def test_a_wrong_mode_is_told_with_the_remedy(run: Run, data: Path) -> None:
    ran = run("replay", "--mode", "cumulative", data / "streams" / "02_incremental_single.sse")
    assert ran.status == 1
    assert "--mode incremental" in ran.err
    assert "mode='" not in ran.err
    assert run("replay", "--mode", "sideways", data / "streams" / "02_incremental_single.sse").status == 2


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_is_binary_and_may_be_gzip(packed: bool, data: Path) -> None:
    body = (data / "streams" / "26_utf8_holdback_and_unicode_line_separators.sse").read_bytes()
    ran = run_process("replay", "-", "--json", input=gzip.compress(body) if packed else body)
    assert ran.status == 0
    assert ran.json["bytes"] == len(body)
    assert (
        ran.json["outputs"][0]["text"]
        == truth_of(data / "streams" / "26_utf8_holdback_and_unicode_line_separators.sse")["indices"]["0"]["text"]
    )


def test_a_torn_gzip_file_is_one_line(run: Run, tmp_path: Path) -> None:
    torn = tmp_path / "torn.sse.gz"
    torn.write_bytes(gzip.compress(DONE * 100)[:30])
    ran = run("replay", torn)
    assert ran.status == 1
    assert ran.err.startswith(f"ssefold: {torn}: the gzip file is not whole")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "no output came"),
        (DONE, "no output came"),
        (b"<html>502 Bad Gateway</html>", "502 Bad Gateway"),
        (b"curl: (7) Failed to connect", "Failed to connect"),
        (b"\x00\x01\x02\x80 not text", "binary data"),
        (b'{"object": "error", "message": "the model is gone", "code": 404}', "the model is gone (code 404)"),
        (b'{"error": {"message": "too long", "type": "BadRequest"}}', "too long"),
        (b'{"detail": [{"msg": "Field required"}]}', "Field required"),
        (b'{"choices": []}', "the OpenAI route"),
        (b"data: {nonsense}\n\n", "not JSON"),
        (b"data: \xff\n\n", "not JSON"),
        (b"data: []\n\n", "must be a JSON object"),
        (b"{half a response", "nor an event stream"),
        (b'["a"]', "must be a JSON object"),
        (event(chunk(1, 2)), "without a terminal finish_reason"),
        (event(chunk(1, 2)) + event(chunk(3, total=9)), "9 in all"),
        (event({"error": {"message": "boom", "code": 400}}), "boom"),
    ],
)  # fmt: skip
def test_bad_bodies_are_one_line_and_status_1(body: bytes, reason: str, run: Run) -> None:
    for arguments in (["replay", "-"], ["replay", "-", "--json"]):
        ran = run(*arguments, input=body)
        assert ran.status == 1
        assert ran.err.count("\n") == 1
        assert reason in ran.err
    assert run("replay", "-", "--json", input=body).json["error"]["message"]


def test_model_text_can_neither_style_nor_move_the_terminal(run: Run) -> None:
    text = '[bold]x[/bold] \x1b[2J \x07 \u2028 \u202e back\\slash "q" \n end'
    body = event(chunk(1, text=text, finish=STOP)) + DONE
    ran = run("replay", "-", input=body)
    assert ran.status == 0
    assert '"[bold]x[/bold] \\x1b[2J \\x07 \\u2028 \\u202e back\\\\slash \\"q\\" \\n end"' in ran.out
    assert not set(ran.out) & set("\x1b\x07\u2028\u202e")


def test_a_server_can_not_style_its_error_message_either(run: Run) -> None:
    ran = run("replay", "-", input=event({"error": {"message": "[red]a\x1b[31m\nb"}}))
    assert "[red]a\\x1b[31m b" in ran.err
    assert "\x1b" not in ran.out + ran.err


def test_a_response_without_stream_is_read_too(run: Run, data: Path) -> None:
    path = data / "captures" / "inc_si1__nonstream_n2.sse"
    ran = run("replay", "--json", path)
    assert ran.status == 0
    assert ran.json["kind"] == "response"
    assert [output["token_ids"] for output in ran.json["outputs"]] == [
        response["output_ids"] for response in json.loads(path.read_bytes())
    ]


def test_long_text_is_whole_in_a_pipe(run: Run) -> None:
    text = "word " * 2000
    ran = run("replay", "-", input=event(chunk(1, text=text, finish=STOP)) + DONE)
    assert f'"{text}"' in ran.out
