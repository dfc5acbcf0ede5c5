"""One update onto one sample: every claim checked first, then a commit that cannot fail.

The core has checked the update alone.  Here it must also start where the sample ends, and have for its tokens what the
other tokens of the sample have.  Knows states and updates; knows nothing of requests.
"""

from __future__ import annotations

from math import nan

from ssefold import ProtocolError, ReplayError, ReplayRows, Update

from .call import spans_after
from .errors import RolloutError
from .replay import joined_routing
from .request import filters_tokens, wants_top_p
from .state import State


def apply_update(state: State, update: Update) -> None:
    """Add what ``update`` brings, or raise and change nothing.

    :raises ProtocolError: position, output, text or logprobs do not fit.
    :raises ReplayError: a replay array does not fit.
    """
    if state.finish is not None:
        if update.token_ids or update.replace:
            raise ProtocolError(f"an update of {len(update.token_ids)} tokens came after the call's finish_reason")
        return
    base = state.base
    start = _start(state, update)
    end = start + len(update.token_ids)
    text_start = _text_start(state, update)
    pending = _pending_after(state, update, end)
    _check_top_p(state, update, start)
    _check_asked_for(state, update, start)
    routed = _routed_after(state, update, end)
    spans = spans_after(state.spans[base.spans :], update, base.tokens, end)

    if not state.open:
        state.open_call(update.meta_info.get("id"), None, 0, scores_due=False)
        base = state.base
    if update.replace:
        for values in (state.token_ids, state.logprobs, state.mask):
            del values[start:]
        state.top_p.cut(start)
    state.token_ids.extend(update.token_ids)
    state.logprobs.extend(nan if value is None else value for value in update.logprobs)
    state.logprobs.extend([nan] * (end - len(state.logprobs)))
    state.mask += b"\x01" * len(update.token_ids)
    if update.top_p is not None:
        state.top_p.put(update.top_p, start)
    if update.text is not None:
        state.text.put(text_start, update.text)
    state.pending = pending
    state.routed = routed
    state.spans[base.spans :] = spans
    state.index = update.index
    state.finish = update.finish_reason


def check_leftovers(state: State) -> None:
    """Refuse to build on a call whose tokens lack what a trainer needs of each token.

    An abort may come without replay arrays (from the queue it does), and a later call cannot make up for them.

    :raises RolloutError: the tokens can only be dropped.
    """
    if not state.given:
        return
    given = state.given
    if state.pending and (state.scores_due or state.pending < given or state.scored):
        raise RolloutError(
            f"{state.pending} of the cut call's {given} tokens came without logprobs: rollback() drops all of them"
        )
    if not wants_top_p(state.params) or state.top_p.gap(state.mask, len(state.mask)) is None:
        return
    if state.finish is None:
        raise RolloutError(
            f"the call was cut before the top-p rows of its {given} tokens came (they come with the terminal chunk):"
            " rollback() drops the tokens; to keep them, have the server abort instead of closing the connection"
        )
    # Where nothing filters, a server that ran to the end has no rows to send, rightly.
    if state.finish.type == "abort" or filters_tokens(state.params):
        raise RolloutError(
            f"the call ended ({state.finish.type}) without top-p rows for its {given} tokens, which"
            " sampling_params.custom_params.return_top_p_token_ids asked for: rollback() drops the tokens; look for a"
            " server that is not slime's image, or a gateway that drops custom_params or meta_info.top_p_token_ids"
        )


def _start(state: State, update: Update) -> int:
    base = state.base.tokens
    start = base if update.replace else len(state.token_ids)
    if update.start != start - base:
        raise ProtocolError(
            f"the update starts at token {update.start} of its call (replace={update.replace}), but"
            f" {start - base} are here: was an update left out or applied twice, or is it a new call's"
            " (next_payload or begin_call comes first)?"
        )
    if state.index not in (None, update.index):
        raise ProtocolError(f"the update is of output {update.index}, this call's was {state.index}: one sample each")
    return start


def _text_start(state: State, update: Update) -> int:
    base = state.base.text
    if update.text is not None and not 0 <= update.text_start <= state.text.length - base:
        raise ProtocolError(
            f"the update's text starts at {update.text_start}, but {state.text.length - base} characters of this call"
            " are here: was an update left out?"
        )
    return base + update.text_start


def _pending_after(state: State, update: Update, end: int) -> int:
    """Tokens of this call that still lack a logprob; old servers send rows late, then all at once (``replace``)."""
    count, scored = len(update.token_ids), len(update.logprobs)
    before = 0 if update.replace else state.pending
    if scored > count or (scored and (before or state.unscored)):
        raise ProtocolError(
            f"{scored} logprobs came with {count} tokens, after {before + state.unscored} sampled tokens that have"
            " none: they must cover every sampled token; was return_logprob set in every request?"
        )
    pending, given = before + count - scored, end - state.base.tokens
    if update.finish_reason is not None and pending and (pending < given or state.scores_due or state.scored):
        raise ProtocolError(
            f"meta_info.output_token_logprobs covers {given - pending} of the call's {given} tokens: rows were lost on"
            " the way, or return_logprob was not set; the gRPC gateway sends none"
        )
    return pending


def _check_top_p(state: State, update: Update, start: int) -> None:
    if update.top_p is not None and len(update.top_p) != len(update.token_ids):
        raise ReplayError(f"top_p has {len(update.top_p)} rows for the update's {len(update.token_ids)} tokens")
    gap = None
    if update.top_p is not None:
        state.top_p.check_room(update.top_p)
        gap = state.top_p.gap(state.mask, start)
    elif update.finish_reason is not None and len(state.top_p):
        # Some tokens have rows: then the call that ends here must have brought its own.
        gap = start if update.token_ids else state.top_p.gap(state.mask, start)
    if gap is not None:
        raise ReplayError(
            f"top-p rows came for some sampled tokens and not for response token {gap}: its call was cut before they"
            " came, or did not ask for them (sampling_params.custom_params.return_top_p_token_ids). Have the server"
            " abort instead of disconnecting, or rollback() a cut call before going on"
        )


def _check_asked_for(state: State, update: Update, start: int) -> None:
    """A call that ran to its end must have brought the replay arrays that ``next_payload`` asked for."""
    reason = update.finish_reason
    given = start - state.base.tokens + len(update.token_ids)
    # An abort may be resumed or dropped (`check_leftovers`); a request of the caller's own may not have asked.
    if reason is None or reason.type == "abort" or not given or not state.scores_due:
        return
    if state.shape is not None and update.routed_experts is None:
        raise ReplayError(
            f"meta_info.routed_experts is missing: the call ended ({reason.type}) with {given} tokens, and num_layers"
            f" and top_k {state.shape} ask for their routing. Start the server with --enable-return-routed-experts, or"
            " look for a gateway that drops return_routed_experts; rollback() drops the tokens"
        )
    rows = wants_top_p(state.params) and filters_tokens(state.params)
    if rows and update.top_p is None and (update.token_ids or state.top_p.gap(state.mask, start) is not None):
        raise ReplayError(
            f"meta_info.top_p_token_ids is missing: the call ended ({reason.type}) with {given} tokens, and"
            " sampling_params.custom_params.return_top_p_token_ids asks for their top-p rows. Only slime's SGLang image"
            " sends them: look at the image, or for a gateway that drops custom_params; rollback() drops the tokens"
        )


def _routed_after(state: State, update: Update, end: int) -> ReplayRows | None:
    base = state.base
    if update.routed_experts is None:
        return base.routed if update.replace else state.routed
    if state.shape is None:
        raise ReplayError("routed_experts came, but the sample has no num_layers and top_k to place them by")
    # An image is one token here and many in the model: the server's count of the prompt is the one that holds.
    sent = len(state.prompt_ids) + base.tokens
    counted = update.meta_info.get("prompt_tokens")
    prompt = counted if type(counted) is int and counted > sent else sent
    return joined_routing(
        base.routed,
        update.routed_experts,
        *state.shape,
        total_tokens=prompt + end - base.tokens,
        start_len=base.routed_from,
    )
