"""A decoder beside the truth: after every event it must hold exactly what the bytes so far say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ssefold import Accumulator, GenerateDecoder, IncompleteStreamError, ProtocolError, ServerError, StreamError
from ssefold.transports.testing import DONE
from tests.core.by_hand import Sample, exact

if TYPE_CHECKING:
    from ssefold.transports.testing import Body, Held


def agrees(output: Accumulator, held: Held) -> None:
    """The output is exactly what a perfect client holds."""
    known = tuple(output.token_ids)
    if held.script.logprobs is not None and held.counted <= held.rows < held.tokens:
        # Ids of a live list that runs ahead of its rows and counter (0.4.6) may be taken with their rows.
        assert known == held.token_ids[: len(known)]
        assert len(known) >= held.rows
    else:
        assert known == held.token_ids
    assert exact(output.logprobs) == exact(held.logprobs)
    # Text of tokens that are lost is not given out.
    assert held.text.startswith(output.text()) if held.lost else output.text() == held.text
    assert (None if output.finish_reason is None else output.finish_reason.raw) == held.finish_reason
    assert (None if output.error is None else output.error.message) == (held.error and held.error["message"])


def follow(body: Body, *, lossy: bool = False, **options: Any) -> GenerateDecoder:
    """Feed the events one by one, and compare state and updates with the truth after each.

    :param lossy: ids may be lost for good: from then on the only right answers are a refusal and what was exact.
    """
    decoder = GenerateDecoder(**options)
    samples: dict[int, Sample] = {}
    before = body.start
    for sent in body.sent:
        try:
            updates = decoder.feed(sent.data)
        except StreamError as error:
            _may_fail(error, body, sent.payload, lossy=lossy and any(held.lost for held in sent.held))
            for index, held in enumerate(before):
                if index in decoder.outputs:
                    agrees(decoder.outputs[index], held)
            return decoder
        assert sent.data != DONE or decoder.done
        for update in updates:
            samples.setdefault(update.index, Sample()).apply(update)
        for index, held in enumerate(sent.held):
            output = decoder.outputs.get(index)
            if output is None:
                assert not held.tokens
                assert not held.complete
            else:
                agrees(output, held)
                samples.get(index, Sample()).agrees_with(output)
        before = sent.held
    for index, output in decoder.outputs.items():
        samples.get(index, Sample()).lists_agree_with(output)
    _ends(decoder, body)
    return decoder


def _may_fail(error: StreamError, body: Body, payload: dict[str, Any] | None, *, lossy: bool) -> None:
    if isinstance(error, ServerError):
        assert body.error is not None
        assert payload == {"error": body.error}
        assert error.message == body.error["message"]
        assert error.code == body.error.get("code")
    else:
        assert lossy, f"refused: {error!r}"
        assert isinstance(error, ProtocolError)


def _ends(decoder: GenerateDecoder, body: Body) -> None:
    """``close`` raises where an output is open, none came, or one has failed."""
    assert not body.error
    arrived = [held for index, held in enumerate(body.held) if index in decoder.outputs]
    try:
        decoder.close()
    except ServerError as error:
        assert any(held.error and held.error["message"] == error.message for held in arrived)
    except IncompleteStreamError:
        assert not arrived or not all(held.complete for held in arrived)
    else:
        assert arrived
        assert all(held.complete for held in arrived)
