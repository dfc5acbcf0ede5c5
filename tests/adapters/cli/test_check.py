"""``ssefold check``: each rule is found where it holds, and streams that are as they should be are left in peace."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from ssefold.adapters.cli.check import RULES
from ssefold.transports.testing import PROFILES, Asked, GreedyModel, Profile, encode

from .conftest import DATA, DONE, STOP, Run, chunk, event

PAGE = DATA.parent.parent / "docs" / "stream-shapes.md"


def recorded(name: str) -> bytes:
    data = (DATA / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def rows(*ids: int) -> dict[str, Any]:
    return {"output_token_logprobs": [[-0.5, one, None] for one in ids]}


CASES: dict[str, bytes] = {
    "SG001": b"",
    "SG002": b"data: {nope\n\n",
    "SG003": b"data: []\n\n",
    "SG004": event(chunk(1, finish=STOP)) + DONE + b'data: {"te',
    "SG005": recorded("streams/39_generic_sse_noise.sse"),
    "SG006": recorded("streams/26_utf8_holdback_and_unicode_line_separators.sse"),
    "SG007": event(chunk(1, text="it says data: [DONE]", finish=STOP)) + DONE,
    "SG008": gzip.compress(event(chunk(1, finish=STOP)) + DONE)[:-5],
    "SG009": b"<!DOCTYPE html><title>502 Bad Gateway</title>",
    "SG010": event({"id": "x", "choices": [{"delta": {"content": "Hi"}}]}),
    "SG101": recorded("streams/03_default_ids_delta_text_cumulative.sse"),
    "SG102": recorded("streams/04_default_ids_delta_with_prompt_tail.sse"),
    "SG103": recorded("captures/cum_si1__batch2.sse"),
    "SG104": event(chunk(1, **rows(1)))
    + event(chunk(3, total=3, text="xyz", finish=STOP, weight_version="v", **rows(1, 2, 3)))
    + DONE,
    "SG105": event(chunk(1, 2)) + event(chunk(3, total=9)),
    "SG106": recorded("streams/36_gateway_grpc_generate.sse"),
    "SG107": b"".join(
        event({"text": text, "meta_info": {"id": "r", "finish_reason": finish, "prompt_tokens": 3}})
        for text, finish in (("a", None), ("ab", None), ("c", STOP))
    )
    + DONE,
    "SG201": event(chunk(1, 2)),
    "SG202": recorded("streams/25_terminal_but_no_done.sse"),
    "SG203": event(chunk(1, 2)) + DONE,
    "SG204": recorded("streams/11_error_event_only.sse"),
    "SG205": event({**chunk(1, finish=STOP), "index": 0}) + event({"error": {"message": "x"}, "index": 1}) + DONE,
    "SG206": recorded("streams/12_abort_while_running.sse"),
    "SG207": recorded("streams/14_abort_in_queue_incremental.sse"),
    "SG208": recorded("captures/cum_si1__bad_logprob_start.sse"),
    "SG209": recorded("streams/18_queue_full_503_in_band.sse"),
    "SG210": event(chunk(1, finish=STOP)) * 2 + DONE,
    "SG211": event(chunk(1, finish={"type": "stop", "matched": "NaN happened"})) + DONE,
    "SG212": event({**chunk(1, finish=STOP), "index": 0}) + DONE + event({**chunk(1, finish=STOP), "index": 1}),
    "SG301": recorded("streams/28_nonfinite_logprobs_become_null.sse"),
    "SG302": event(chunk(1, **rows(1))) + event(chunk(1, 2, 3, text="xxx")),
    "SG303": event({"text": "x", "meta_info": {"id": "r", "finish_reason": STOP, "completion_tokens": 5}}) + DONE,
    "SG304": recorded("captures/cum_si1__broken_utf8_mid.sse"),
    "SG305": event(chunk(1, finish=STOP, reasoning_tokens=7)) + DONE,
    "SG306": recorded("streams/35_weight_update_mid_stream.sse"),
    "SG307": event(chunk(1, finish=STOP, num_retractions=2)) + DONE,
    "SG308": event(chunk(text="", total=0)) + event(chunk(1, finish=STOP)) + DONE,
    "SG401": event(chunk(1, finish=STOP, top_p_token_ids="AAAA", top_p_token_offsets="AAAA")) + DONE,
    "SG402": recorded("streams/23_routed_experts_null_in_nonterminal.sse"),
    "SG403": event(chunk(1, finish=STOP, routed_experts="")) + DONE,
    "SG404": event(chunk(1, finish=STOP, routed_experts=base64.b64encode(bytes(4 * 7)).decode())) + DONE,
}


def test_every_rule_has_a_case() -> None:
    assert list(CASES) == list(RULES)


@pytest.mark.parametrize("code", CASES)
def test_a_rule_is_found_where_it_holds(code: str, run: Run) -> None:
    body = CASES[code]
    ran = run("check", "--json", "-", input=body)
    [checked] = ran.json
    codes = {finding["code"]: finding for finding in checked["findings"]}
    assert code in codes
    assert codes[code]["offset"] is None or 0 <= codes[code]["offset"] < len(body)
    assert ran.status == (1 if any(RULES[one].severity == "error" for one in codes) else 0)
    told = run("check", "-", input=body)
    assert told.status == ran.status
    assert f"{code} {RULES[code].severity} {RULES[code].title}: " in told.out
    assert told.err == ""


@pytest.mark.parametrize("profile", PROFILES.values(), ids=str)
def test_a_stream_as_it_should_be_has_notes_at_most(profile: Profile, run: Run) -> None:
    asked = Asked(
        rid="r", prompt_ids=(5, 6, 7), max_new_tokens=40, return_logprob=True, return_routed_experts=True,
        return_top_p=profile.slime,
    )  # fmt: skip
    ran = run("check", "--json", "-", input=encode([GreedyModel()(asked)], profile).data)
    assert [one for one in ran.json[0]["findings"] if one["severity"] != "note"] == []
    assert ran.status == 0


def test_offsets_are_those_of_the_event(run: Run) -> None:
    first = event(chunk(1)) + b": a comment\n\n"
    body = first + event(chunk(2, total=2, finish={"type": "abort", "message": "x"})) + DONE
    [checked] = run("check", "--json", "-", input=body).json
    found = {finding["code"]: finding["offset"] for finding in checked["findings"]}
    assert found == {"SG206": len(first), "SG005": len(event(chunk(1)))}


def test_the_same_about_the_same_output_is_counted(run: Run) -> None:
    body = event(chunk(text="", total=0)) * 5 + event(chunk(1, finish=STOP)) + DONE
    [checked] = run("check", "--json", "-", input=body).json
    [found] = checked["findings"]
    assert (found["code"], found["count"], found["offset"]) == ("SG308", 5, 0)


def test_several_files_and_the_worst_decides(run: Run, tmp_path: Path, data: Path) -> None:
    good = data / "streams" / "01_cumulative_single.sse"
    bad = tmp_path / "bad.sse"
    bad.write_bytes(CASES["SG201"])
    assert run("check", good).status == 0
    assert run("check", "--no-fast-path", good).out == run("check", good).out
    ran = run("check", good, bad)
    assert ran.status == 1
    assert "01_cumulative_single.sse: nothing remarkable" in ran.out
    assert "bad.sse: 1 error" in ran.out


@pytest.mark.parametrize("code", RULES)
def test_explain_says_what_and_what_to_do(code: str, run: Run) -> None:
    ran = run("explain", code.lower())
    assert ran.status == 0
    assert ran.out.startswith(f"{code} {RULES[code].severity}: {RULES[code].title}\n")
    assert "What to do: " in ran.out
    assert run("explain", code, "--json").json["code"] == code


def test_explain_lists_all_and_knows_no_other(run: Run) -> None:
    assert [line.split()[0] for line in run("explain").out.splitlines()] == list(RULES)
    assert run("explain", "SG999").status == 2


def test_codes_are_in_order_and_say_where_they_belong() -> None:
    assert list(RULES) == sorted(RULES)
    assert all(re.fullmatch(r"SG[0-4]\d\d", code) for code in RULES)


def test_the_page_lists_every_code() -> None:
    listed = re.findall(r"^\| (SG\d{3}) \| (\w+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [(rule.code, rule.severity, rule.title) for rule in RULES.values()]
