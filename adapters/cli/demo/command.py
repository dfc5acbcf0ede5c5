"""``ssefold demo``: options, the choice of a view, and the exit status."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from ...rollout import RolloutSample
from ..terminal import as_json, json_option, new_console, print_lines
from .rounds import ROUNDS, Comparison, play
from .view import LiveView, PlainView, SilentView, opening

_EPILOG = """\b
Examples:
  ssefold demo
  ssefold demo | less
  ssefold demo --json
"""


@click.command(epilog=_EPILOG, short_help="Stream, cut, resume and compare a rollout.")
@json_option
@click.pass_context
def demo(ctx: click.Context, json_: bool) -> None:
    """Stream a rollout, cut it, resume it, and compare it with one that was never cut.

    Fake SGLang servers are started on loopback; nothing else is needed.  The exit status is 0 only if every token id,
    logprob and replay row is equal.
    """
    console = new_console()
    live = LiveView(console) if console.is_terminal and not json_ else None
    view = live or (SilentView() if json_ else PlainView(console))
    if not json_:
        print_lines(console, [Text(opening())])
    results: list[tuple[RolloutSample, list[Comparison]]] = []
    try:
        for at, round_ in enumerate(ROUNDS):
            results.append(asyncio.run(play(round_, at + 1, view)))
    finally:
        if live is not None:
            live.close()
    equal = all(one.holds for _, comparisons in results for one in comparisons)
    if json_:
        click.echo(as_json({"equal": equal, "rollouts": [_plain(at, *result) for at, result in enumerate(results)]}))
    else:
        verdict = "Resumed rollouts equal the uninterrupted ones, token by token and logprob by logprob."
        failure = "A RESUMED ROLLOUT DIFFERS FROM THE UNINTERRUPTED ONE: please report this."
        console.print()
        console.print(
            Text(verdict if equal else failure, style="bold green" if equal else "bold red"), soft_wrap=live is None
        )
    ctx.exit(0 if equal else 1)


def _plain(at: int, sample: RolloutSample, comparisons: list[Comparison]) -> dict[str, Any]:
    return {
        **asdict(ROUNDS[at]),
        "calls": [call._asdict() for call in sample.calls],
        "token_ids": list(sample.token_ids),
        "logprobs": list(sample.logprobs),
        "text": sample.text,
        "comparisons": [{**asdict(one), "holds": one.holds} for one in comparisons],
    }
