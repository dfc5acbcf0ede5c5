"""What the same request gives with ``stream: false``.

The terminal chunk of a cumulative stream, delivered first, without ``index``; a JSON list where the request was
list-shaped or had ``n > 1`` (``tokenizer_manager._collect_batch_responses``).  The scheduler still sends in steps, of
50 tokens, which only the text of broken UTF-8 and ``customized_info`` up to 0.5.12 can show.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .manager import ManagedOutput

if TYPE_CHECKING:
    from ..profiles import Profile
    from ..script import Script

_FORCED_INTERVAL = 50


class HTTPFailureError(Exception):
    """The response is an HTTP error: the request was rejected or shed.

    :ivar status: the HTTP status.
    :ivar body: its JSON.
    """

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


def nonstream(
    scripts: Sequence[Script] | Script,
    profile: Profile,
    *,
    listed: bool | None = None,
    sends: Sequence[Sequence[int]] | None = None,
) -> Any:
    """The JSON of the whole response: an object, or a list of them in index order.

    :param listed: the request was list-shaped or had ``n > 1``.  Default: more than one output.
    :param sends: the scheduler's steps per output, to compare with a stream whose text shows them.
    :raises HTTPFailureError: instead of an abort that carries a status.
    :raises ValueError: for an output that never ends, and for servers that have no such response.
    """
    outputs = [scripts] if not isinstance(scripts, Sequence) else list(scripts)
    if profile.family not in ("sglang", "dynamo"):
        raise ValueError(f"non-streaming responses of {profile} are not modelled")
    responses = [
        _response(script, profile, tuple(sends[i]) if sends is not None else _forced(len(script.token_ids)))
        for i, script in enumerate(outputs)
    ]
    with_list = len(outputs) > 1 if listed is None else listed
    return responses if with_list else responses[0]


def _response(script: Script, profile: Profile, sends: tuple[int, ...]) -> dict[str, Any]:
    finish = script.finish
    if finish.how == "unfinished":
        raise ValueError("an output that never ends has no response")
    if finish.abort_status is not None and 400 <= finish.abort_status < 600:
        raise _failure(finish.abort_status, (finish.reason or {}).get("message", ""))
    output = ManagedOutput(script, profile, stream=False)
    for step, new_tokens in enumerate(sends):
        output.send(new_tokens, last=step == len(sends) - 1 and finish.how == "finished")
    if finish.how == "queued":
        output.abort()
    return output.take()[0]


def _failure(status: int, message: str) -> HTTPFailureError:
    """``_create_error_response`` for a bad request, the handler of ``HTTPException`` for the rest."""
    if status == 400:
        return HTTPFailureError(status, {"error": {"message": message}})
    body = {"object": "error", "message": message, "type": str(status), "param": None, "code": status}
    return HTTPFailureError(status, body)


def _forced(tokens: int) -> tuple[int, ...]:
    whole, rest = divmod(tokens, _FORCED_INTERVAL)
    return (_FORCED_INTERVAL,) * whole + ((rest,) if rest or not whole else (0,))
