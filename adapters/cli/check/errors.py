"""The core's errors as the command shows them: with a code, and without Python names.

Knows errors and single payloads; knows no streams.
"""

from __future__ import annotations

import json
import re

from ssefold import PayloadError, ProtocolError, ReplayError, ServerError, StreamError

_SHOWN = 80
_DIALECTS = {
    "choices": "the OpenAI route",
    "candidates": "the Gemini route",
    "delta": "the OpenAI Responses or the Anthropic route",
    "generated_text": "Text Generation Inference",
}
_IN_A_SHELL = (
    (re.compile(r"; resume from \.partial"), ""),
    (re.compile(r"[Ss]et mode='(\w+)' or mode='(\w+)'"), r"try --mode \1 or --mode \2"),
    (re.compile(r"[Ss]et mode='(\w+)' or '(\w+)'"), r"try --mode \1 or --mode \2"),
    (re.compile(r"mode='(\w+)'"), r"--mode \1"),
)


def words(error: Exception) -> str:
    """The message of a core error for a shell: with options instead of Python arguments."""
    text = str(error)
    for pattern, instead in _IN_A_SHELL:
        text = pattern.sub(instead, text)
    return text


def dialect_of(payload: object) -> str:
    """The route that answers with such an object; empty if it is SGLang's own, or not known."""
    if isinstance(payload, dict) and "meta_info" not in payload:
        for key, route in _DIALECTS.items():
            if key in payload:
                return f"{route} (it has `{key}`)"
    return ""


def json_of(data: bytes) -> object:
    """The JSON of an event; None if it is none."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


def is_silence(start: bytes) -> bool:
    """Nothing but blank lines and comments."""
    return all(not line.strip() or line.startswith(b":") for line in start.splitlines())


def no_stream(start: bytes) -> str:
    """What is wrong with a body in which there is no event, and what it is instead."""
    front = start.lstrip()
    what = "text"
    if front.startswith(b"<"):
        what = "HTML or XML"
    elif b"\0" in start or "\ufffd" in front[:_SHOWN].decode("utf-8", "replace").rstrip("\ufffd"):
        what = "binary data"
    shown = front[:_SHOWN].decode("utf-8", "backslashreplace")
    return f"it is no event stream but {what}, which begins with {shown!r}"


def code_of(error: StreamError, data: bytes | None, *, native: bool) -> str:
    """The code of a failure at an event with this data (None: at no event), or of a response."""
    if isinstance(error, PayloadError):
        payload = None if data is None else json_of(data)
        if dialect_of(payload):
            return "SG010"
        if data is None or (native and not _is_response(payload)):
            return "SG009"
        return "SG002" if payload is None else "SG003"
    if isinstance(error, ReplayError):
        return "SG401"
    if isinstance(error, ServerError):
        return "SG204"
    return "SG105" if isinstance(error, ProtocolError) else "SG201"


def _is_response(payload: object) -> bool:
    one = payload[0] if isinstance(payload, list) and payload else payload
    return isinstance(one, dict) and bool(one.keys() & {"text", "output_ids", "meta_info"})
