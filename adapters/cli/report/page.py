"""The report of ``ssefold inspect --html``: one page that needs nothing else, and can not ask for anything.

No script, no network (the page forbids both to itself), and text of models and servers is escaped twice: control
characters first, then HTML.  Pictures are :mod:`.charts`'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ..check import Finding
from ..reading import Reading, Timeline, Token, tokens_of
from ..terminal import number, one_line, plural, quoted
from .arrays import load_by_layer, routing_summary, top_p_summary
from .charts import bars, heat_map, marks
from .lines import finish_words, mean_logprob, sent_text

_MOST_OUTPUTS = 16
_MOST_TOKENS = 20_000

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --soft: #667; --line: #d9dee5; --blue: #2f6fde;
  --a: #1a7f37; --b: #9a6700; --c: #c4520a; --d: #cf222e; --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --paper: #12161c; --soft: #9aa4b2; --line: #2b323c;
  --blue: #6ea8fe; --a: #56d364; --b: #e3b341; --c: #ff9b50; --d: #ff7b72; --card: #1a2029; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 960px; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2.2rem;
  border-bottom: 1px solid var(--line); } h3 { font-size: .95rem; margin: 1.2rem 0 .2rem; color: var(--soft); }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .25rem .8rem .25rem 0;
  vertical-align: top; } th { color: var(--soft); font-weight: 500; white-space: nowrap; }
.scroll { overflow-x: auto; } .text { font: 14px/1.7 ui-monospace, monospace; background: var(--card); padding: .8rem;
  border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; }
svg { display: block; max-width: 100%; height: auto; font: 11px system-ui, sans-serif; } svg text { fill: var(--soft); }
.grid { stroke: var(--line); } .bar, .heat { fill: var(--blue); }
.a { color: var(--a); fill: var(--a); stroke: var(--a); }
.b { color: var(--b); fill: var(--b); stroke: var(--b); } .c { color: var(--c); fill: var(--c); stroke: var(--c); }
.d { color: var(--d); fill: var(--d); stroke: var(--d); } .n { color: var(--soft); fill: var(--soft); }
.error { color: var(--d); } .warning { color: var(--b); } .note { color: var(--blue); } .legend { color: var(--soft); }
.text span { stroke: none; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def html_report(reading: Reading, facts: Sequence[tuple[str, str]], timeline: Timeline | None, layers: int) -> str:
    """The page.

    :param facts: names and words about the body as a whole.
    """
    name = _safe(reading.name)
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>ssefold: {name}</title><style>{_STYLE}</style></head><body>"
    )
    return head + f"<h1>{name}</h1>" + "\n".join(_body(reading, facts, timeline, layers)) + "</body></html>\n"


def _body(reading: Reading, facts: Sequence[tuple[str, str]], timeline: Timeline | None, layers: int) -> Iterator[str]:
    yield _table([(name, _safe(value)) for name, value in facts])
    if reading.findings:
        yield "<h2>Anomalies</h2>"
        yield _findings(reading.findings)
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
    yield "<h3>Text, coloured by surprise</h3>" + _coloured(tokens, sent_text(output))
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
        f'<span class="{_style(token.event_logprob)}" title="#{token.position}, id {token.token_id}, '
        f'{number(token.logprob)}">{escape(quoted(token.text)[1:-1])}</span>'
        for token in tokens[:_MOST_TOKENS]
        if token.text
    ]
    more = len(tokens) - _MOST_TOKENS
    if more > 0:
        spans.append(f'<span class="n"> … {plural(more, "more token")}</span>')
    legend = "".join(
        f' <span class="{name}">{words}</span>'
        for name, words in (("a", "expected"), ("b", "less so"), ("c", "surprising"), ("d", "very"), ("n", "null"))
    )
    return f'<div class="text">{"".join(spans)}</div><p class="legend">{legend}</p>'


def _style(logprob: float | None) -> str:
    if logprob is None:
        return "n"
    return "a" if logprob > -0.25 else "b" if logprob > -1.5 else "c" if logprob > -4.0 else "d"


def _findings(findings: Sequence[Finding]) -> str:
    rows = [
        f'<tr><td class="{one.rule.severity}">{one.code}</td><td>{_safe(one.rule.title)}</td>'
        f"<td>{'' if one.index is None else f'output {one.index}'}</td><td>{_safe(one.message)}</td>"
        f"<td>byte {one.offset:,}{f', {one.count:,} times' if one.count > 1 else ''}</td></tr>"
        for one in findings
    ]
    return f'<div class="scroll"><table>{"".join(rows)}</table></div>'


def _table(rows: Sequence[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><th>{_safe(name)}</th><td>{value}</td></tr>' for name, value in rows)}</table>"


def _picture(title: str, svg: str) -> str:
    return f'<h3>{_safe(title)}</h3><div class="scroll">{svg}</div>' if svg else ""


def _safe(text: str) -> str:
    return escape(one_line(text))
