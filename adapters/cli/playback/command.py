"""``ssefold serve-fake``: a fake SGLang server, or a recording on repeat, until Ctrl-C."""

from __future__ import annotations

import threading

import click

from ssefold.transports.testing import PROFILES, FakeSGLang

from ..demo import demo_model
from ..reading import Recording, read_sidecar
from ..terminal import as_json, json_option
from .server import PlaybackServer

_EPILOG = """\b
Examples:
  ssefold serve-fake --port 30000
  ssefold serve-fake --profile 0.5.10-incremental --token-delay 0.02
  ssefold serve-fake --recording recorded.sse --timing
  ssefold serve-fake --list
"""


@click.command("serve-fake", epilog=_EPILOG, short_help="Serve a fake SGLang, or a recording.")
@click.option("--profile", default="0.5.23", show_default=True, help="Version and flags to imitate; see --list.")
@click.option("--interval", type=click.IntRange(1), default=1, show_default=True, help="--stream-interval.")
@click.option("--token-delay", type=click.FloatRange(0), default=0.0, show_default=True, help="Seconds per token.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Listen here; default: any free port.")
@click.option("--recording", type=click.Path(exists=True, dir_okay=False), help="Repeat this recording instead.")
@click.option("--timing", is_flag=True, help="With --recording: at its own pace.")
@click.option("--list", "list_", is_flag=True, help="List the profiles and stop.")
@json_option
def serve_fake(
    profile: str,
    interval: int,
    token_delay: float,
    port: int,
    recording: str | None,
    timing: bool,
    list_: bool,
    json_: bool,
) -> None:
    """Serve /generate on 127.0.0.1 and print the address; stop it with Ctrl-C.

    Answers are streamed as the chosen version of SGLang would; tokens depend on the prompt alone.
    """
    if list_:
        click.echo(as_json(list(PROFILES)) if json_ else "\n".join(PROFILES))
        return
    if profile not in PROFILES:
        raise click.UsageError(f"there is no profile {profile!r}; `ssefold serve-fake --list` names them")
    server: FakeSGLang | PlaybackServer
    if recording is None:
        server = FakeSGLang(demo_model, profile=profile, interval=interval, token_delay=token_delay, port=port)
    else:
        body = Recording(recording).read_whole()
        reads = read_sidecar(recording, len(body))
        if timing and reads is None:
            raise click.UsageError("--timing needs a recording with times (ssefold record keeps them)")
        server = PlaybackServer(body, reads, timing=timing, port=port)
    with server:
        url = f"{server.url}/generate"
        click.echo(as_json({"url": url}) if json_ else url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return
