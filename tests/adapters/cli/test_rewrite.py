"""``ssefold diff``, ``convert`` and ``anonymize``: the same answer, another answer, and an answer that says nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="click comes with the extra `cli`")
pytest.importorskip("rich", reason="rich comes with the extra `cli`")
pytest.importorskip("httpx", reason="httpx comes with the extra `cli`")

from ssefold.adapters.cli.reading import SUFFIX, Recording, fold_recording
from ssefold.transports.testing import PROFILES, Asked, GreedyModel, Profile, encode, nonstream

from .conftest import DATA, DONE, STOP, Run, chunk, event

RECORDED = sorted((DATA / "streams").glob("*.sse")) + sorted((DATA / "captures").glob("*_si1__*.sse"))
SMALL = [path for path in RECORDED if path.stat().st_size < 20_000]
# One of each behaviour, as far as chunks are concerned.
SHAPES = (
    "0.4.10", "0.5.3", "0.5.5", "0.5.9", "0.5.9-incremental", "0.5.10-incremental", "0.5.11", "0.5.23",
    "0.5.23-incremental", "0.5.10-incremental-tokens_only", "0.5.15.post1-slime", "0.5.15.post1-incremental-slime",
    "rust-incremental", "grpc-gateway", "grpc-gateway-pd", "http-gateway-pd", "dynamo",
)  # fmt: skip


def answer(profile: Profile, outputs: int = 2, **asked: Any) -> bytes:
    count = outputs if profile.family != "dynamo" else 1
    scripts = [
        GreedyModel()(
            Asked(
                rid=f"rollout-{sample}", prompt_ids=(5, 6, 7), sample=sample, max_new_tokens=25, return_logprob=True,
                top_logprobs_num=2, return_top_p=profile.slime, return_routed_experts=True, **asked,
            )
        )
        for sample in range(count)
    ]  # fmt: skip
    return encode(scripts, profile).data


def facts(body: bytes) -> Any:
    reading = fold_recording(Recording("x", body))
    return {
        index: (
            list(output.token_ids), list(output.logprobs), output.text(), output.finish_reason, output.top_p,
            output.routed_experts, output.error is None,
        )
        for index, output in reading.outputs.items()
    }  # fmt: skip


def bodies() -> list[Any]:
    profiles = [pytest.param(answer(profile), id=profile.name) for profile in map(PROFILES.__getitem__, SHAPES)]
    return profiles + [pytest.param(Recording(str(path)).read(), id=path.name) for path in SMALL]


class TestConvert:
    @pytest.mark.parametrize("body", bodies())
    def test_whatever_it_is_converted_to_it_says_the_same(self, body: bytes, run: Run, tmp_path: Path) -> None:
        error = fold_recording(Recording("x", body)).error
        for target in ("cumulative", "incremental", "native"):
            out = tmp_path / target
            ran = run("convert", "-", "--to", target, "-o", out, input=body)
            assert ran.status == (0 if error is None else 1)
            assert out.exists() == bool(facts(body))
            if out.exists():
                assert facts(out.read_bytes()) == facts(body)

    @pytest.mark.parametrize("target", ["cumulative", "incremental"])
    def test_the_lanes_are_those_asked_for(self, target: str, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "out.sse"
        for name in ("0.5.3", "0.5.10-incremental", "0.5.23", "0.5.23-incremental"):
            run("convert", "-", "--to", target, "-o", out, input=answer(PROFILES[name], outputs=1))
            [output] = run("replay", "--json", "--mode", target, out).json["outputs"]
            assert set(output["lanes"].values()) == {target}

    def test_native_is_what_stream_false_gives(self, run: Run) -> None:
        profile = PROFILES["0.5.23-incremental"]
        script = GreedyModel()(Asked(rid="r", prompt_ids=(5, 6, 7), max_new_tokens=25, return_logprob=True))
        body = encode([script], profile).data
        ran = run("convert", "-", "--to", "native", input=body)
        assert json.loads(ran.out) == nonstream(script, profile)

    def test_a_response_becomes_a_stream(self, run: Run, data: Path, tmp_path: Path) -> None:
        response = data / "captures" / "inc_si1__nonstream_n2.sse"
        out = tmp_path / "out.sse"
        assert run("convert", response, "--to", "incremental", "-o", out, "--json").json["outputs"] == 2
        assert out.read_bytes().endswith(DONE)
        assert run("diff", response, out).status == 0

    def test_rewritten_text_can_not_be_said_in_deltas(self, run: Run) -> None:
        texts = (("a", None), ("ab", None), ("c", STOP))
        chunks = [
            event({"text": text, "meta_info": {"id": "r", "finish_reason": finish, "prompt_tokens": 3}})
            for text, finish in texts
        ]
        body = b"".join(chunks) + DONE
        ran = run("convert", "-", "--to", "incremental", input=body)
        assert ran.status == 1
        assert "text was rewritten" in ran.err
        assert run("convert", "-", "--to", "cumulative", input=body).status == 0

    def test_json_needs_a_file(self, run: Run) -> None:
        assert run("convert", "-", "--to", "native", "--json", input=DONE).status == 2


class TestDiff:
    @pytest.mark.parametrize("name", ["0.5.3", "0.5.10-incremental", "0.5.23-incremental"])
    def test_versions_and_modes_do_not_matter(self, name: str, run: Run, tmp_path: Path) -> None:
        one, other = tmp_path / "a.sse", tmp_path / "b.sse"
        one.write_bytes(answer(PROFILES["0.5.23"], outputs=1))
        other.write_bytes(answer(PROFILES[name], outputs=1))
        ran = run("diff", one, other)
        assert (ran.status, ran.out) == (0, "the same: 1 output, 25 tokens\n")

    def changed(self, tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
        script = GreedyModel()(Asked(rid="r", prompt_ids=(5, 6, 7), max_new_tokens=9, return_logprob=True))
        one, other = tmp_path / "a.sse", tmp_path / "b.sse"
        one.write_bytes(encode([script], PROFILES["0.5.23"]).data)
        made = {name: change(getattr(script, name)) for name, change in changes.items()}
        other.write_bytes(encode([replace(script, **made)], PROFILES["0.5.23"]).data)
        return one, other

    def test_the_first_token_that_differs(self, run: Run, tmp_path: Path) -> None:
        pair = self.changed(tmp_path, token_ids=lambda ids: (*ids[:4], 9, 9, *ids[6:]))
        ran = run("diff", *pair)
        assert ran.status == 1
        assert ran.out.startswith("output 0: the first token that differs is #4\n  A  id ")
        assert re.search(r"^  B  id 9, logprob -\d+\.\d+, event 4 \(byte [\d,]+\)", ran.out, re.MULTILINE)
        [found] = run("diff", *pair, "--json").json["differences"]
        assert (found["what"], found["position"], found["b"]["token_id"]) == ("token", 4, 9)

    def test_a_logprob_that_differs_in_its_last_bits_unless_that_is_tolerated(self, run: Run, tmp_path: Path) -> None:
        pair = self.changed(tmp_path, logprobs=lambda values: (*values[:3], values[3] + 1e-9, *values[4:]))
        ran = run("diff", *pair)
        assert ran.status == 1
        assert "the first logprob that differs is #3" in ran.out
        assert run("diff", *pair, "--tolerance", "1e-6").status == 0

    def test_null_is_no_number(self, run: Run, tmp_path: Path) -> None:
        pair = self.changed(tmp_path, logprobs=lambda values: (None, *values[1:]))
        assert run("diff", *pair, "--tolerance", "1e9").status == 1

    def test_text_alone(self, run: Run, tmp_path: Path) -> None:
        pair = self.changed(tmp_path, pieces=lambda pieces: (*pieces[:-1], b"!"))
        ran = run("diff", *pair)
        assert ran.status == 1
        assert "text differs: from character " in ran.out

    def test_one_that_ends_sooner(self, run: Run, tmp_path: Path) -> None:
        one, other = tmp_path / "a.sse", tmp_path / "b.sse"
        one.write_bytes(event(chunk(1, 2, finish=STOP)) + DONE)
        other.write_bytes(event(chunk(1, finish=STOP)) + DONE)
        ran = run("diff", one, other)
        assert ran.status == 1
        assert "  B  nothing: it has ended" in ran.out

    def test_a_missing_output_and_another_end(self, run: Run, tmp_path: Path) -> None:
        one, other = tmp_path / "a.sse", tmp_path / "b.sse"
        length = {"type": "length", "length": 1}
        one.write_bytes(event(chunk(1, finish=STOP)) + event({**chunk(1, finish=STOP), "index": 1}) + DONE)
        other.write_bytes(event(chunk(1, finish=length)) + DONE)
        said = run("diff", one, other).out
        assert "finish_reason differs: stop (matched 2) in A, length (length 1) in B" in said
        assert "b.sse has no output 1" in said

    def test_a_bad_stream_is_told(self, run: Run, tmp_path: Path) -> None:
        one = tmp_path / "a.sse"
        one.write_bytes(event(chunk(1)))
        ran = run("diff", one, one)
        assert ran.status == 1
        assert ran.err.count("\n") == 2
        assert run("diff", "-", "-", input=b"").status == 2


class TestAnonymize:
    @pytest.mark.parametrize("body", bodies())
    def test_the_shape_stays(self, body: bytes, run: Run, tmp_path: Path) -> None:
        out = tmp_path / "out.sse"
        ran = run("anonymize", "-", "-o", out, input=body)
        if not body:
            assert ran.status == 1
            return
        assert (ran.status, ran.err) == (0, f"wrote {out}\n")
        before, after = (fold_recording(Recording("x", one)) for one in (body, out.read_bytes()))
        assert [one.code for one in after.findings] == [one.code for one in before.findings]
        for index, output in before.outputs.items():
            other = after.outputs[index]
            assert list(other.logprobs) == list(output.logprobs)
            assert len(other.token_ids) == len(output.token_ids)
            # Which ids are equal stays; which they are does not.
            mapping = dict(zip(output.token_ids, other.token_ids, strict=True))
            assert [mapping[one] for one in output.token_ids] == list(other.token_ids)
            assert len(set(mapping.values())) == len(mapping)
            assert list(map(len, output.text().encode("utf-8").split())) == list(
                map(len, other.text().encode("utf-8").split())
            )

    def test_nothing_of_it_is_left(self, run: Run, data: Path) -> None:
        secret = "Secret, Ünïcode 秘密鍵 🔑 phrase"
        payload = {
            **chunk(123456, 234567, text=secret, finish={"type": "stop", "matched": "Stopword"}),
            "prompt_token_ids": [345678],
        }
        payload["meta_info"] |= {
            "id": "customer-request", "weight_version": "path/to/model", "hidden_states": [[0.123, [4.5]]],
            "customized_info": ["topsecret"], "output_token_logprobs": [[-0.5, 123456, "Secret"], [-1, 234567, None]],
            "top_p_token_ids": [123456, 456789], "top_p_token_offsets": [0, 1, 2],
            "input_top_logprobs": [None, [[-1.5, 567890, None]]],
        }  # fmt: skip
        errors = event({"error": {"message": "Prompt 'confidential' is too long", "code": 400}, "index": 3})
        body = b": remark about Customer\n\n" + event(payload) + errors + DONE + b"data: leftover Customer"
        ran = run("anonymize", "-", input=body)
        assert ran.status == 0
        for word in (
            "Secret", "nïcode", "phrase", "秘密", "🔑", "Stopword", "customer", "Customer", "model", "topsecret",
            "confidential", "remark", "leftover", "0.123", "4.5", *map(str, range(123456, 600000, 111111)),
        ):  # fmt: skip
            assert word not in ran.out, word

    def test_two_runs_are_not_alike(self, run: Run, data: Path) -> None:
        path = data / "streams" / "01_cumulative_single.sse"
        outs = {run("anonymize", path).out for _ in range(4)}
        assert len(outs) > 1

    def test_bytes_beside_the_events(self, run: Run) -> None:
        ran = run("anonymize", "-", input=b"log: Secret 502\n" + event(chunk(1)) + b"data: {half Secret")
        assert ran.out
        assert "Secret" not in ran.out
        assert "502" not in ran.out

    def test_times_go_along(self, run: Run, tmp_path: Path) -> None:
        body = answer(PROFILES["0.5.23-incremental"], outputs=1)
        one, other = tmp_path / "a.sse", tmp_path / "b.sse"
        one.write_bytes(body)
        reads = [[0.1 * at, 100] for at in range(1, len(body) // 100 + 1)] + [[99.0, len(body) % 100]]
        lines = [{"ssefold": "reads", "version": 1, "url": "http://secret"}, *reads, {"end": "complete"}]
        (tmp_path / ("a.sse" + SUFFIX)).write_text("".join(json.dumps(line) + "\n" for line in lines))
        run("anonymize", one, "-o", other)
        before, after = (run("inspect", "--json", path).json["timeline"] for path in (one, other))
        assert after == before
        assert "secret" not in (tmp_path / ("b.sse" + SUFFIX)).read_text()
