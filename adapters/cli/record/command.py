"""``ssefold record``: the raw bytes of a response, and the time of each read.

The recorder writes all bytes, also those of a stream that cannot be folded.
Folding runs along for the progress line only.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import IO, Any
from urllib.parse import urljoin

import click
import httpx

from ssefold import GenerateDecoder, StreamError

from ..output import OUTPUT, NewFile, name_files
from ..reading import SOURCE, VERSION, sidecar_of
from ..terminal import as_json, one_line
from .progress import Progress, show_progress

_EPILOG = """\b
Examples:
  ssefold record http://localhost:30000/generate --payload payload.json -o out.sse
  echo '{"text": "Hello", "return_logprob": true}' | ssefold record URL --payload - -o out.sse
  ssefold record URL --payload payload.json -H 'Authorization: Bearer ...' | ssefold replay -
"""
_ABORT_TIMEOUT = 5.0
_INTERRUPTED = "interrupted"
_MOST_SHOWN = 2000


@click.command(epilog=_EPILOG, short_help="Record a response, byte by byte, with times.")
@click.argument("url")
@click.option("--payload", required=True, type=SOURCE, help="The request's JSON; `stream` is set, and `rid` if absent.")
@click.option("-o", "--output", type=OUTPUT, help="Where to write; default: standard output.")
@click.option("-f", "--force", is_flag=True, help="Replace the file if there is one.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME:VALUE", help="Send this header too.")
@click.option("--json", "json_", is_flag=True, help="Print a JSON summary (on standard error if there is no -o).")
@click.pass_context
def record(
    ctx: click.Context,
    url: str,
    payload: str,
    output: str | None,
    force: bool,
    headers: tuple[str, ...],
    json_: bool,
) -> None:
    """Send a request to URL and record the raw bytes of the response.

    A second file (.reads.jsonl) has the size and time of each read.  Ctrl-C is safe: the recording so far stays valid,
    and the server is asked to abort.  An existing file is replaced only with --force, and only if bytes were received.
    A response with an HTTP error is shown, not recorded.
    """
    _check_url(url)
    request = _payload(payload)
    if output is None and sys.stdout.isatty():
        raise click.UsageError("raw bytes are not for a terminal: give -o FILE, or pipe them on")
    if output is not None and Path(output).is_file() and not force:
        raise click.UsageError(f"{one_line(output)} exists: give another -o, or --force to replace it")
    fields = [_header(one) for one in headers]
    progress = Progress()
    if output is None:
        with show_progress(progress, quiet=json_):
            failure = _record(url, request, fields, sys.stdout.buffer, _nothing, progress)
        files: list[str] = []
    else:
        files = [output, str(sidecar_of(output))]
        with NewFile(output, [payload]) as body, NewFile(files[1], [payload]) as sidecar:

            def note(value: Any) -> None:
                sidecar.file.write(json.dumps(value).encode() + b"\n")
                sidecar.file.flush()

            with show_progress(progress, quiet=json_):
                failure = _record(url, request, fields, body.file, note, progress)
            if body.file.tell():
                body.commit()
                sidecar.commit()
            else:
                files = []
    if json_:
        written = {"output": files[0] if files else None, "sidecar": files[1] if files else None}
        click.echo(as_json({**progress.as_dict(), **written, "error": failure}), err=output is None)
    else:
        name_files(*files)
    if failure is not None:
        click.echo(f"ssefold: {one_line(failure)}", err=True)
        ctx.exit(1)


def _record(
    url: str,
    request: dict[str, Any],
    headers: list[tuple[str, str]],
    body: IO[bytes],
    note: Callable[[Any], None],
    progress: Progress,
) -> str | None:
    """Record until the end; returns what went wrong."""
    decoder = GenerateDecoder()
    ours = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
    with httpx.Client(timeout=httpx.Timeout(10.0, read=None)) as client:
        start = perf_counter()
        try:
            with client.stream("POST", url, json=request, headers=[*headers, *ours.items()]) as response:
                kind = response.headers.get("content-type", "")
                if response.status_code != 200:
                    return _refused(url, response)
                note({"ssefold": "reads", "version": VERSION, "status": response.status_code, "content_type": kind})
                for data in response.iter_raw():
                    now = perf_counter() - start
                    body.write(data)
                    body.flush()
                    note([round(now, 6), len(data)])
                    progress.received(data, now, _fold(decoder, data))
        except KeyboardInterrupt:
            note({"end": _INTERRUPTED})
            _stop(client, url, request["rid"], headers)
            stopped = "what was recorded is valid, the server was asked to stop"
            return f"{_INTERRUPTED} after {progress.size:,} bytes; {stopped}"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            note({"end": text})
            hint = "" if progress.size else "; does a server run there? `ssefold serve-fake` starts one"
            return f"{url}: {text}, after {progress.size:,} bytes{hint}"
        note({"end": "complete"})
    if not kind.startswith("text/event-stream"):
        return f"the content type is {kind or 'missing'}, not text/event-stream: the body was recorded as it came"
    return None


def _refused(url: str, response: httpx.Response) -> str:
    """What an HTTP error says, and what to do if the URL has no route."""
    hint = ""
    if response.status_code in (404, 405) and not httpx.URL(url).path.endswith("/generate"):
        hint = "; the URL needs its route, as in http://host:port/generate"
    return f"{url}: status {response.status_code}, nothing recorded; the server says: {_said(response)}{hint}"


def _said(response: httpx.Response) -> str:
    """The start of an error's body."""
    body = b""
    for data in response.iter_raw():
        body += data
        if len(body) >= _MOST_SHOWN:
            return body[:_MOST_SHOWN].decode("utf-8", "replace") + " …"
    return body.decode("utf-8", "replace").strip() or "nothing"


def _fold(decoder: GenerateDecoder, data: bytes) -> int:
    """Tokens so far; 0 if the stream cannot be folded."""
    if decoder.error is None:
        with suppress(StreamError):
            decoder.feed(data)
    return sum(len(output.token_ids) for output in decoder.outputs.values())


def _stop(client: httpx.Client, url: str, rid: Any, headers: list[tuple[str, str]]) -> None:
    # A closed connection alone leaves the request running in some versions.
    for one in rid if isinstance(rid, list) else [rid]:
        with suppress(httpx.HTTPError):
            client.post(urljoin(url, "abort_request"), json={"rid": one}, headers=headers, timeout=_ABORT_TIMEOUT)


def _payload(source: str) -> dict[str, Any]:
    text = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"--payload {source} is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise click.UsageError(f"--payload {source} must be a JSON object, found {type(request).__name__}")
    rid = request.get("rid")
    return {**request, "stream": True, "rid": uuid.uuid4().hex if rid is None else rid}


def _check_url(url: str) -> None:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise click.UsageError(f"URL {one_line(url)} is none: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.host:
        raise click.UsageError(f"URL {one_line(url)} must look like http://host:port/generate")


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"-H {text!r} must look like 'Name: value'")
    return name.strip(), value.strip()


def _nothing(_: Any) -> None:
    """No sidecar beside standard output."""
