"""What ``check`` can find in a stream, as a table: a code, its severity, and its meaning.

``ssefold explain`` prints it, ``docs/stream-shapes.md`` lists it, and :mod:`.check` finds it.  Codes never change
their meaning; SG0 is about bytes, SG1 about lanes, SG2 about ends, SG3 about tokens and text, SG4 about replay arrays.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]


class Rule(NamedTuple):
    """One rule.

    :ivar severity: ``error``: the stream is unusable; ``warning``: something was lost or will probably go wrong;
        ``note``: legal, but simple readers handle it wrongly.
    :ivar explanation: what happened and why, as far as the server's source tells.
    :ivar remedy: what to do.
    """

    code: str
    severity: Severity
    title: str
    explanation: str
    remedy: str


def _by_code(*rules: Rule) -> dict[str, Rule]:
    return {rule.code: rule for rule in rules}


RULES = _by_code(
    Rule(
        "SG001", "error", "no output came",
        "The body is empty, or has nothing but [DONE] or comments. SGLang up to 0.5.5 answers every 503 and 500 of its "
        "scheduler like this, with status 200; any version does when it dies before the first chunk.",
        "Retry the request; look at the server's log and at proxies between.",
    ),
    Rule(
        "SG002", "error", "data that is not JSON",
        "An event's data is not valid JSON in UTF-8. SGLang writes with orjson, which always is; a proxy "
        "changed or cut the bytes, or an error page came in the place of a stream.",
        "Record the stream beside the server and compare.",
    ),
    Rule(
        "SG003", "error", "a field of the wrong type",
        "The payload is JSON, but not an object, or a field is not what SGLang ever sends under that name.",
        "Look for a gateway that renders the JSON itself.",
    ),
    Rule(
        "SG004", "warning", "the body ends inside an event",
        "The last event lacks its blank line, so it was dropped, as the norm says: half an event may be half a number. "
        "A proxy or the server closed the connection in the middle of a write.",
        "Resume from the tokens before it; look at timeouts of proxies.",
    ),
    Rule(
        "SG005", "note", "bytes that SGLang does not send",
        "SGLang's events are one `data: ` line and a blank one. A byte order mark, carriage returns, comments and the "
        "fields event, id and retry come from gateways and proxies (Dynamo sends `:` as keep-alive).",
        "Nothing; but a hand-written reader of `data: ` lines may fail on it.",
    ),
    Rule(
        "SG006", "note", "line separators inside JSON",
        "U+2028, U+2029 or U+0085 stand raw in a JSON string (orjson does not escape them). Python's str.splitlines, "
        "and with it the line iterators of httpx, end a line there and tear the event in two.",
        "Split on CR and LF only.",
    ),
    Rule(
        "SG007", "note", "model text contains `data: [DONE]`",
        "Relays that look for this text anywhere in the bytes end the stream here (sgl-model-gateway with "
        "prefill/decode disaggregation did, smg PR 1878).",
        "Compare [DONE] with the whole data of an event.",
    ),
    Rule(
        "SG008", "error", "the gzip file is not whole",
        "It ends in its middle, or its checksum is wrong: a copy or a recording was interrupted. What could be "
        "decompressed was read.",
        "Copy or record it again.",
    ),
    Rule(
        "SG009", "error", "not an event stream",
        "The body has no event: it is an HTML page, binary data, the message of a shell or a proxy, or JSON that is no "
        "response of /generate.",
        "Read the first bytes; look at the URL, at proxies between, and at the command that wrote the file.",
    ),
    Rule(
        "SG010", "error", "another dialect",
        "The JSON is that of another route: the OpenAI-compatible one (`choices`), or another vendor's. Such streams "
        "have no token ids with logprobs in SGLang's form.",
        "Send the request to SGLang's native route, /generate.",
    ),
    Rule(
        "SG101", "note", "lanes differ",
        "Some parts of the chunks are deltas, others snapshots. So it is in 0.5.1 to 0.5.5 by default, in 0.5.6 to "
        "0.5.9 with --stream-output and in 0.5.10 with --incremental-streaming-output "
        "(tokenizer_manager._handle_batch_output); logprobs follow the flag since 0.5.11 (PR 21583).",
        "Judge every part on its own, as mode='auto' does.",
    ),
    Rule(
        "SG102", "note", "prompt ids in front of the first output_ids",
        "SGLang 0.5.1 to 0.5.4 returns up to five ids of the prompt with the first chunk (detokenizer_manager: "
        "output_ids=decode_ids). They were left out.",
        "Take the ids of the logprob rows, or upgrade the server.",
    ),
    Rule(
        "SG103", "note", "lists ahead of their counters",
        "In batches a cumulative chunk refers to lists that grow until they are written, while its counters are frozen "
        "(_stream_batch_responses). The tokens are right, only early.",
        "Nothing; but lists may be longer than completion_tokens before the last chunk.",
    ),
    Rule(
        "SG104", "warning", "output_ids lost on the way to a slow reader",
        "Where ids are deltas and chunks are not joined (0.5.1 to 0.5.9), a reader slower than the server loses ids "
        "of the chunks between. The logprob rows are complete, and were used instead.",
        "Ask for return_logprob, read faster, or upgrade the server to 0.5.10 or newer.",
    ),
    Rule(
        "SG105", "error", "lengths, ids or modes that contradict each other",
        "A chunk's lists fit its counters neither as delta nor as snapshot, a cumulative chunk changed what it had "
        "sent, or a lane changed its mode. A wrong token must not get into a sample, so folding ended here.",
        "Read the message: it has the numbers. Look for a gateway that merges, drops or retries, and for --mode.",
    ),
    Rule(
        "SG106", "note", "the last id repeated",
        "A chunk brings no new token but repeats the last id: the terminal event of the gRPC gateway.",
        "Count tokens by completion_tokens.",
    ),
    Rule(
        "SG107", "note", "text rewritten",
        "Later evidence showed that the text was read wrongly; an update with a smaller text_start put it right.",
        "Apply text_start; give --mode (in Python: mode) what the server was started with.",
    ),
    Rule(
        "SG201", "error", "an output has no end",
        "The body ended and no finish_reason came: the server died or raised, a proxy cut, or a relay took model text "
        "for [DONE]. The tokens so far are an exact prefix.",
        "Resume from them.",
    ),
    Rule(
        "SG202", "warning", "no [DONE]",
        "Every output has its finish_reason, but the last event is missing: a proxy closed early. The data are whole.",
        "Nothing for this stream; look at the proxy.",
    ),
    Rule(
        "SG203", "error", "[DONE] although an output is open",
        "Batches of SGLang up to 0.5.5 end like this when one output raised, and so do gateways. [DONE] is no success.",
        "Resume the open outputs; upgrade the server.",
    ),
    Rule(
        "SG204", "error", "the server reported a failure",
        "An error event ended the stream: over-long input, duplicate rid, bad parameters, overload. It comes under "
        "status 200, as the response had begun (http_server.stream_results).",
        "Read the server's message; 503 and 429 are worth a retry.",
    ),
    Rule(
        "SG205", "error", "the server failed one output",
        "An error event with an index, from SGLang's Rust server: this output is lost, the others go on.",
        "Ask again for this one.",
    ),
    Rule(
        "SG206", "note", "aborted while running",
        "/abort_request or pause_generation ended it. The tokens are valid, replay arrays included.",
        "Resume if it was to go on.",
    ),
    Rule(
        "SG207", "warning", "aborted in the waiting queue",
        "It waited, or had been retracted, when it was aborted; tokenizer_manager._handle_abort_req made the chunk. It "
        "has no prompt_tokens, no replay arrays, and in some versions only the last id.",
        "Resume; what only a terminal chunk brings (replay arrays) must come from the next call.",
    ),
    Rule(
        "SG208", "error", "the server refused the request",
        "An abort with a status from 400 on: validation, grammar, out of memory. The scheduler puts [0] in place of a "
        "refused prompt and samples one junk token, which was left out (schedule_batch.set_finish_with_abort).",
        "Read the message; the sample has failed.",
    ),
    Rule(
        "SG209", "warning", "the server shed the request",
        "An abort with status 503 or 429: queue full, timeout, priority.",
        "Try again later, or elsewhere.",
    ),
    Rule(
        "SG210", "warning", "data after an output's end",
        "A chunk came for an output that had its finish_reason. No SGLang sends that; a gateway may. It was ignored.",
        "Look for a gateway that glues responses together.",
    ),
    Rule(
        "SG211", "error", "the sampler broke down",
        "finish_reason is stop with matched 'NaN happened': an id outside the vocabulary was drawn "
        "(schedule_batch._check_vocab_boundary_finish).",
        "Drop the sample; look at the weights.",
    ),
    Rule(
        "SG212", "warning", "data after [DONE]",
        "[DONE] is SGLang's last event. Data after it was folded nevertheless.",
        "Look for a gateway that glues responses together.",
    ),
    Rule(
        "SG301", "note", "null logprobs",
        "Logprobs that are not finite are written as null, since JSON has no word for them (orjson).",
        "Expect None; a trainer must decide what such a token is worth.",
    ),
    Rule(
        "SG302", "warning", "tokens without logprobs",
        "Some tokens have logprobs and others do not: rows came late, or never.",
        "Do not train on such an output; up to 0.5.18 some chunks lack the rows that a later one brings.",
    ),
    Rule(
        "SG303", "warning", "completion_tokens is not the number of tokens",
        "The counter of the last chunk differs from the tokens that came. Servers before 0.5.1 send no ids unless "
        "return_logprob is set, and an abort can count what was never sent.",
        "Trust the tokens; compare with a run with stream=false.",
    ),
    Rule(
        "SG304", "note", "U+FFFD in the text",
        "The text has a replacement character: the answer ended inside a character, a gateway decoded chunk by chunk, "
        "or the model wrote it.",
        "Decode the ids, which are the truth.",
    ),
    Rule(
        "SG305", "note", "more reasoning tokens than tokens",
        "reasoning_tokens and completion_tokens are counted at different cuts (speculative decoding; issue 39826).",
        "Do not assert on it.",
    ),
    Rule(
        "SG306", "note", "weights changed",
        "The tokens come from more than one weight version: an update happened while they were generated.",
        "Look at weight_versions before you compare logprobs.",
    ),
    Rule(
        "SG307", "note", "retracted",
        "The scheduler took the request out of the batch and back in; the stream was silent meanwhile.",
        "Nothing; retraction never takes back streamed tokens.",
    ),
    Rule(
        "SG308", "note", "chunks with nothing new",
        "Neither a token nor text: a character or a stop string is held back, or stream_interval is 1. They are legal.",
        "Measure progress in ids.",
    ),
    Rule(
        "SG401", "error", "a replay array is not what it says",
        "Top-p rows or routed experts have the wrong size, order or encoding. A row that is off by one is a wrong "
        "gradient, so folding ended here.",
        "Read the message; a prefill/decode hand-over can lose rows.",
    ),
    Rule(
        "SG402", "note", "routed_experts null before the end",
        "SGLang 0.5.7 to 0.5.9 has the key in every chunk and the array in the last.",
        "Keep the array when a null follows, and do not take null for missing.",
    ),
    Rule(
        "SG403", "note", "routed_experts without rows",
        'The array is the empty string: zero rows, since routed_experts_start_len reached the end. torch.frombuffer '
        "raises on it.",
        "Take it for zero rows.",
    ),
    Rule(
        "SG404", "note", "routed_experts is not of the whole call",
        "Its elements are no multiple of prompt_tokens + completion_tokens - 1 rows: it was cropped by "
        "routed_experts_start_len, or belongs to something else.",
        "Give reshape() the start_len that was asked for.",
    ),
)  # fmt: skip
"""Every rule by its code."""
