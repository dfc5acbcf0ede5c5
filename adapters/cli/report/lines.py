"""The report of a folded body: as plain data for machines, and as lines for people.

Both say the same.  Knows readings; how they came about is :mod:`.fold`'s matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from ssefold import Accumulator, FinishReason

from ..check import Finding, words
from ..reading import Reading
from ..terminal import Hanging, one_line, plural, quoted

_SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "note": "cyan"}
_WIDTH = 11


def as_dict(reading: Reading) -> dict[str, Any]:
    """Everything, plain."""
    return {
        "name": reading.name,
        "kind": "response" if reading.native else "stream",
        "bytes": reading.size,
        "events": reading.events,
        "done": reading.done,
        "cut": reading.cut,
        "error": error_dict(reading),
        "outputs": [_output_dict(reading, index) for index in sorted(reading.outputs)],
        "anomalies": [finding.as_dict() for finding in reading.findings_of(None)],
    }


def error_dict(reading: Reading) -> dict[str, Any] | None:
    """Why it is a bad stream, or None."""
    error = reading.error
    if error is None:
        return None
    return {
        "type": type(error).__name__,
        "code": reading.error_code,
        "message": words(error),
        "offset": reading.error_at,
    }


def error_line(reading: Reading) -> str:
    """The reason in one line, for standard error; empty for a good stream."""
    if reading.error is None:
        return ""
    place = "" if reading.error_at is None else f"byte {reading.error_at:,}; "
    return f"ssefold: {one_line(reading.name)}: {one_line(words(reading.error))} ({place}{reading.error_code})"


def sent_text(output: Accumulator) -> str | None:
    """The server's text; None if it sent none (``--skip-tokenizer-init``)."""
    text: str | None = output.native_response().get("text")
    return text


def report_lines(reading: Reading, *, text_limit: int | None) -> Iterator[Text]:
    """The same for people."""
    head = Text(one_line(reading.name), style="bold")
    head.append(f"  {plural(reading.size, 'byte')}, ", style="default not bold")
    if reading.native:
        head.append("a response with stream=false", style="default not bold")
    else:
        done = "[DONE]" if reading.done else "no [DONE]"
        head.append(f"{plural(reading.events, 'event')}, {done}", style="default not bold")
    yield head
    for finding in reading.findings_of(None):
        yield Text("  ").append_text(finding_line(finding, told=is_told(finding, reading)))
    for index in sorted(reading.outputs):
        yield from _output_lines(reading, index, text_limit)


def finding_line(finding: Finding, *, told: bool = False) -> Text:
    """One finding: code, severity, what it is, what was seen.

    :param told: the message is on standard error already.
    """
    line = Text(f"{finding.code} ", style=_SEVERITY_STYLE[finding.rule.severity])
    line.append(finding.rule.severity, style=_SEVERITY_STYLE[finding.rule.severity])
    message = "" if told else f": {one_line(finding.message)}"
    line.append(f" {finding.rule.title}{message}", style="default not bold")
    return line.append(where(finding), style="dim")


def is_told(finding: Finding, reading: Reading) -> bool:
    """Its message is that of the error, which goes to standard error."""
    return reading.error is not None and words(reading.error).endswith(finding.message)


def where(finding: Finding) -> str:
    """Its place and how often it was seen, in brackets; empty if there is neither."""
    parts = [] if finding.offset is None else [f"byte {finding.offset:,}"]
    if finding.count > 1:
        parts.append(f"{finding.count:,} times")
    return f" ({', '.join(parts)})" if parts else ""


def mean_logprob(output: Accumulator) -> float | None:
    """Over the tokens whose logprob is a number; None if there are none."""
    known = [logprob for logprob in output.logprobs if logprob is not None]
    return sum(known) / len(known) if known else None


def finish_words(finish: FinishReason | None) -> str:
    """Why an output ended, in a few words."""
    if finish is None:
        return "none: the output is not complete"
    facts = [
        f"{name} {value!r}" if isinstance(value, str) else f"{name} {value}"
        for name in ("matched", "length", "message", "status_code", "err_type")
        if (value := getattr(finish, name)) is not None
    ]
    return f"{finish.type} ({', '.join(facts)})" if facts else finish.type


def _output_dict(reading: Reading, index: int) -> dict[str, Any]:
    output = reading.outputs[index]
    finish = output.finish_reason
    top_p, routed, indexer = output.top_p, output.routed_experts, output.indexer_topk
    return {
        "index": index,
        "complete": finish is not None,
        "tokens": len(output.token_ids),
        "mean_logprob": mean_logprob(output),
        "text": sent_text(output),
        "finish_reason": None if finish is None else finish.raw,
        "error": None if output.error is None else words(output.error),
        "replay": {
            "top_p": None if top_p is None else {"rows": len(top_p), "token_ids": len(top_p.token_ids)},
            "routed_experts": None if routed is None else {"numbers": len(routed)},
            "indexer_topk": None if indexer is None else {"numbers": len(indexer)},
        },
        "lanes": dict(output.lanes),
        "anomalies": [finding.as_dict() for finding in reading.findings_of(index)],
        "token_ids": list(output.token_ids),
        "logprobs": list(output.logprobs),
    }


def _output_lines(reading: Reading, index: int, text_limit: int | None) -> Iterator[Text]:
    output = reading.outputs[index]
    yield Text(f"output {index}", style="bold")
    finish = output.finish_reason
    bad = finish is None or finish.is_failure
    yield field("finish", one_line(finish_words(finish)), "red" if bad else "default")
    mean = mean_logprob(output)
    scored = "no logprobs" if mean is None else f"mean logprob {mean:.4f}"
    yield field("tokens", f"{len(output.token_ids):,}, {scored}")
    text = sent_text(output)
    yield field("text", "none sent" if text is None else quoted(text, text_limit))
    lanes = [f"{name} {lane or 'unknown'}" for name, lane in output.lanes.items()]
    yield field("lanes", one_line(", ".join(lanes)))
    yield field("replay", "; ".join(_replay_words(output)) or "none")
    findings = reading.findings_of(index)
    if not findings:
        yield field("anomalies", "none")
    for at, finding in enumerate(findings):
        line = field("" if at else "anomalies", "")
        yield line.append_text(finding_line(finding, told=is_told(finding, reading)))


def _replay_words(output: Accumulator) -> Iterator[str]:
    if output.top_p is not None:
        yield f"top-p {plural(len(output.top_p), 'row')} of {plural(len(output.top_p.token_ids), 'token id')}"
    for name, array in (("routed experts", output.routed_experts), ("indexer top-k", output.indexer_topk)):
        if array is not None:
            yield f"{name} {plural(len(array), 'number')}"


def field(name: str, value: str, style: str = "default") -> Text:
    """A line of a report: what it is about, and the words."""
    line = Hanging(f"  {name:<{_WIDTH}}")
    line.stylize("dim")
    line.hang = len(line)
    line.append(value, style=style)
    return line
