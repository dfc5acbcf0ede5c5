"""The report of ``ssefold inspect --html``: one self-contained page without network access.

No script, no network (the page forbids both to itself), and text of models and servers is escaped twice: control
characters first, then HTML.  Pictures are :mod:`.charts`'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import PurePath

from ..check import Finding, words
from ..reading import Reading, Timeline, Token, tokens_of
from ..terminal import LEVELS, level, number, one_line, plural, quoted
from .arrays import load_by_layer, routing_summary, top_p_summary
from .charts import bars, heat_map, marks
from .lines import finish_words, mean_logprob, sent_text, where

_MOST_OUTPUTS = 16
_MOST_TOKENS = 20_000

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --soft: #57606a; --line: #d9dee5; --blue: #2f6fde;
  --a: #1a7f37; --b: #9a6700; --c: #c4520a; --d: #cf222e; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #12161c; --soft: #9aa4b2; --line: #2b323c;
  --blue: #6ea8fe; --a: #56d364; --b: #e3b341; --c: #ff9b50; --d: #ff7b72; --card: #1a2029; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 1.5rem auto;
  max-width: 900px; padding: 0 16px; }
h1 { font-size: 1.4rem; margin: 0 0 .4rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 1.2rem 0 .2rem; color: var(--soft); }
.verdict { border-left: 4px solid; padding: .3rem .8rem; background: var(--card); overflow-wrap: anywhere; }
.verdict.good { border-color: var(--a); } .verdict.bad { border-color: var(--d); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .8rem .25rem 0;
  vertical-align: top; overflow-wrap: anywhere; } th { color: var(--soft); font-weight: 500; white-space: nowrap; }
.scroll { overflow-x: auto; } .text { font: 14px/1.7 ui-monospace, monospace; background: var(--card); padding: .8rem;
  border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
.findings td:not(.message) { white-space: nowrap; }
.narrow { display: none; }
@media (max-width: 700px) { .wide { display: none; } .narrow { display: block; }
  .findings, .findings tbody, .findings tr { display: block; } .findings td { display: inline; padding-right: .5rem; }
  .findings td:not(.message) { white-space: normal; }
  .findings tr { padding: .5rem 0; border-bottom: 1px solid var(--line); } .findings .message { display: block; } }
svg { display: block; font: 12px system-ui, sans-serif; } svg text { fill: var(--soft); }
.grid, .frame { stroke: var(--line); } .bar, .heat { fill: var(--blue); }
.a { color: var(--a); fill: var(--a); stroke: var(--a); }
.b { color: var(--b); fill: var(--b); stroke: var(--b); } .c { color: var(--c); fill: var(--c); stroke: var(--c); }
.d { color: var(--d); fill: var(--d); stroke: var(--d); } .n { color: var(--soft); fill: var(--soft); }
.error { color: var(--d); } .warning { color: var(--b); } .note { color: var(--blue); } .legend { color: var(--soft); }
.legend span { white-space: nowrap; margin-right: .8rem; } .text span, .legend span { stroke: none; }
"""
_CLASSES = ("a", "b", "c", "d")
_LEGEND = " ".join(
    f'<span class="{name}">■ {words_}</span>'
    for name, words_ in (
        ("a", f"logprob above {LEVELS[0]}"),
        ("b", f"to {LEVELS[1]}"),
        ("c", f"to {LEVELS[2]}"),
        ("d", "lower"),
        ("n", "null or none"),
    )
)
_SHARED = " Tokens of one event have one text, which is coloured by their mean logprob."
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def html_report(reading: Reading, facts: Sequence[tuple[str, str]], timeline: Timeline | None, layers: int) -> str:
    """The page.

    :param facts: names and words about the body as a whole.
    """
    name = "standard input" if reading.name == "-" else _safe(PurePath(reading.name).name)
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ssefold: {name}</title><style>{_STYLE}</style></head><body>"
    )
    return (
        head
        + f"<h1>{name}</h1>{_verdict(reading)}"
        + "\n".join(_body(reading, facts, timeline, layers))
        + "</body></html>\n"
    )


def _body(reading: Reading, facts: Sequence[tuple[str, str]], timeline: Timeline | None, layers: int) -> Iterator[str]:
    yield _table([(name, _safe(value)) for name, value in facts])
    yield "<h2>Anomalies</h2>"
    yield _findings(reading.findings) if reading.findings else "<p>Nothing remarkable.</p>"
    sizes = [float(step.end - step.offset) for step in reading.steps]
    yield _picture("Bytes per event", bars(sizes, label="bytes per event", unit="event", text=lambda v: f"{v:,.0f}"))
    if timeline is not None:
        gaps = [gap * 1000 for gap in timeline.gaps]
        chart = bars(gaps, label="milliseconds between tokens", unit="event with tokens", text=lambda v: f"{v:,.1f} ms")
        yield _picture("Milliseconds between events with tokens", chart)
    indexes = sorted(reading.outputs)
    for index in indexes[:_MOST_OUTPUTS]:
        yield from _output(reading, index, layers)
    if len(indexes) > _MOST_OUTPUTS:
        yield f"<p>{plural(len(indexes) - _MOST_OUTPUTS, 'more output')} not shown.</p>"


def _verdict(reading: Reading) -> str:
    tokens = sum(len(output.token_ids) for output in reading.outputs.values())
    counts = f"{plural(len(reading.outputs), 'output')}, {plural(tokens, 'token')}"
    if reading.error is not None:
        return f'<p class="verdict bad">Bad: {_safe(words(reading.error))} ({reading.error_code}). {counts}.</p>'
    kinds = Counter(one.rule.severity for one in reading.findings)
    if kinds["error"]:
        first = next(one for one in reading.findings if one.rule.severity == "error")
        said = f"{first.code}, {_safe(first.rule.title)}: {_safe(first.message)}"
        return f'<p class="verdict bad">Bad: {said}. {counts}.</p>'
    rest = " and ".join(plural(kinds[kind], kind) for kind in ("warning", "note") if kinds[kind])
    return f'<p class="verdict good">Good: {counts}, {rest or "nothing remarkable"}.</p>'


def _output(reading: Reading, index: int, layers: int) -> Iterator[str]:
    output = reading.outputs[index]
    mean = mean_logprob(output)
    lanes = ", ".join(f"{name} {lane or 'unknown'}" for name, lane in output.lanes.items())
    rows = [
        ("finish", _safe(finish_words(output.finish_reason))),
        ("tokens", f"{len(output.token_ids):,}" + ("" if mean is None else f", mean logprob {mean:.4f}")),
        ("lanes", _safe(lanes)),
    ]
    if output.top_p is not None:
        top_p = top_p_summary(output.top_p, output.token_ids)
        rows.append(("top-p", f"{plural(top_p.rows, 'row')}, {top_p.fewest} to {top_p.most} ids kept"))
    yield f"<h2>Output {index}</h2>" + _table(rows)
    tokens = tokens_of(reading, index)
    yield "<h3>Text, coloured by logprob</h3>" + _coloured(tokens, sent_text(output))
    chart = marks(
        [token.logprob for token in tokens],
        label="logprob per token", unit="token", text=lambda value: f"{value:.4f}", style=_style,
    )  # fmt: skip
    yield _picture("Logprob per token", chart)
    if output.routed_experts is not None:
        routing = routing_summary(output.routed_experts, output)
        loads = load_by_layer(output.routed_experts, routing, layers)
        columns = max(routing.load, default=-1) + 1
        title = "Load of routed experts" + (
            ", all layers together (--layers tells them apart)" if len(loads) == 1 else ""
        )
        yield _picture(title, heat_map(loads, columns, label="routed experts, load by layer"))


def _coloured(tokens: Sequence[Token], whole: str | None) -> str:
    if whole is None:
        return '<p class="legend">The server sent no text.</p>'
    spans = [
        f'<span class="{_style(token.event_logprob)}" title="{_title(token)}">{escape(quoted(token.text)[1:-1])}</span>'
        for token in tokens[:_MOST_TOKENS]
        if token.text
    ]
    more = len(tokens) - _MOST_TOKENS
    if more > 0:
        spans.append(f'<span class="n"> … {plural(more, "more token")}</span>')
    shared = "" if all(token.of == 1 for token in tokens) else _SHARED
    return f'<div class="text">{"".join(spans)}</div><p class="legend">{_LEGEND}{shared}</p>'


def _title(token: Token) -> str:
    if token.of == 1:
        return f"#{token.position}, id {token.token_id}, {number(token.logprob)}"
    return f"#{token.position - token.of + 1} to #{token.position}, mean {number(token.event_logprob)}"


def _style(logprob: float | None) -> str:
    return "n" if logprob is None else _CLASSES[level(logprob)]


def _findings(findings: Sequence[Finding]) -> str:
    rows = [
        f'<tr><td class="{one.rule.severity}">{one.code} {one.rule.severity}</td>'
        f"<td>{'' if one.index is None else f'output {one.index}'}</td><td>{_safe(one.rule.title)}</td>"
        f'<td class="message">{_safe(one.message)}{where(one)}</td></tr>'
        for one in findings
    ]
    return f'<table class="findings">{"".join(rows)}</table>'


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><th>{_safe(name)}</th><td>{value}</td></tr>' for name, value in rows)}</table>"


def _picture(title: str, svg: str) -> str:
    return f'<h3>{_safe(title)}</h3><div class="scroll">{svg}</div>' if svg else ""


def _safe(text: str) -> str:
    return escape(one_line(text))
