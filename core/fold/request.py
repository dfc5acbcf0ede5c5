"""Does a chunk belong to this output, and may it still come?  Asked before anything in it is looked at.

In every recording the ``id`` of an output and its ``prompt_tokens`` never change, with two exceptions: an abort out of
the waiting queue has no ``prompt_tokens`` (``tokenizer_manager.py::_handle_abort_req``; 0 before 0.5.5), and a rejected
request counts the one id that the scheduler put in the prompt's place (``schedule_batch.py::set_finish_with_abort``).
"""

from __future__ import annotations

from ..errors import ProtocolError
from .chunk import Chunk
from .state import OutputState
from .tokens import parse_ids


def check_request(state: OutputState, chunk: Chunk) -> None:
    """The chunk must be of the request that the output began with.

    :raises ProtocolError: it has another ``id``, or another number of prompt tokens.
    """
    was, now = state.meta.get("id"), chunk.meta.get("id")
    if was is not None and now is not None and was != now:
        raise ProtocolError(
            f"meta_info.id was {was!r:.80} and is now {now!r:.80} in output {state.index}: this chunk belongs to "
            "another request. A gateway mixed two answers, or sent the request again within one"
        )
    was, now = state.meta.get("prompt_tokens"), chunk.meta.get("prompt_tokens")
    if was and now and was != now and (chunk.finish is None or not chunk.finish.is_failure):
        raise ProtocolError(
            f"meta_info.prompt_tokens was {was!r:.80} and is now {now!r:.80} in output {state.index}: a prompt does "
            "not change. A gateway mixed two answers, or sent the request again within one"
        )


def check_repeat(state: OutputState, chunk: Chunk) -> None:
    """A chunk after the output's terminal chunk may repeat what is known, and nothing else.

    :raises ProtocolError: it goes beyond the end, or says something else.
    """
    check_request(state, chunk)
    ids, text, count = parse_ids(chunk.ids or []), chunk.text or "", chunk.completion
    known, whole = state.token_ids, state.text.value()
    if not known and not whole and chunk.finish == state.finish:
        return  # a rejected request, of which nothing was taken
    last = len(known) if count is None else count
    if (
        last <= max(len(known), state.count or 0)
        and (not ids or ids == known[: len(ids)] or ids == known[max(last - len(ids), 0) : last])
        and (whole.startswith(text) or whole.endswith(text))
    ):
        return
    raise ProtocolError(
        f"output {state.index} ended with {state.finish!r} after {len(known)} tokens, and a later chunk goes on "
        f"({len(ids)} ids, completion_tokens {count}, text {text[:40]!r}): the end came too early, or a gateway mixed "
        "two answers"
    )
