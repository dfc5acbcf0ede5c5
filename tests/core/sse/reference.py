"""The WHATWG algorithm, transcribed literally and slowly, and the parser's size bound, byte by byte.

This file must share nothing with the parser: no import from the library, no shortcut, no incremental state.  It gets
the whole of the bytes that arrived and says what must have come out of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FIELDS = ("data", "event", "id", "retry")
MAX_RETRY_DIGITS = 640  # the one deviation: a longer number is ignored, as it is no time that anybody could wait


@dataclass
class Outcome:
    """What a stream means after all of its bytes arrived."""

    events: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    comments: list[str] = field(default_factory=list[str])
    last_event_id: str = ""
    reconnection_time: int | None = None
    unfinished: bool = False
    """Whether a data, event or id line, or the start of one, comes after the last dispatch."""


def interpret(stream: bytes, last_event_id: str = "") -> Outcome:
    """Section 9.2.6, "Interpreting an event stream", carried out on a stream that has arrived up to here."""
    outcome = Outcome(last_event_id=last_event_id)
    data_buffer = ""
    event_type_buffer = ""
    last_event_id_buffer = last_event_id
    lines, rest = split_lines(decode(stream))
    for line in lines:
        if line == "":
            outcome.last_event_id = last_event_id_buffer
            outcome.unfinished = False
            if data_buffer == "":
                event_type_buffer = ""
                continue
            if data_buffer[-1] == "\n":
                data_buffer = data_buffer[:-1]
            event_type = event_type_buffer if event_type_buffer != "" else "message"
            outcome.events.append((event_type, data_buffer, outcome.last_event_id))
            data_buffer = ""
            event_type_buffer = ""
            continue
        name, value = name_and_value(line)
        if name == "":
            outcome.comments.append(value)
        elif name == "event":
            event_type_buffer = value
            outcome.unfinished = True
        elif name == "data":
            data_buffer = data_buffer + value + "\n"
            outcome.unfinished = True
        elif name == "id":
            if "\u0000" not in value:
                last_event_id_buffer = value
                outcome.unfinished = True
        elif name == "retry" and is_ascii_digits(value) and len(value.lstrip("0")) <= MAX_RETRY_DIGITS:
            outcome.reconnection_time = int(value.lstrip("0") or "0")
    if rest != "" and may_be_event_line(rest):
        outcome.unfinished = True
    return outcome


def held(stream: bytes, *, comments: bool = False) -> int:
    """Bytes that count against the bound when ``stream`` has arrived: those of the event in progress.

    Its data (values, and a LF before each but the first), its event type and ID, and the value that is arriving, that
    of a comment only if somebody asked for ``comments``.
    """
    lines, rest = split_lines(undecoded(stream))
    data: list[str] = []
    event_type = ""
    event_id = ""
    for line in lines:
        if line == "":
            data, event_type, event_id = [], "", ""
            continue
        name, value = name_and_value(line)
        if name == "data":
            data.append(value)
        elif name == "event":
            event_type = value
        elif name == "id" and "\u0000" not in value:
            event_id = value
    total = len("\n".join(data)) + len(event_type) + len(event_id)
    if ":" in rest and rest.index(":") < len(rest) - 1:  # else a space that does not count may follow
        name, value = name_and_value(rest)
        if name in FIELDS or (comments and name == ""):
            total += len(value)
        if name == "data" and data:
            total += 1
    return total


def first_excess(stream: bytes, limit: int, *, comments: bool = False) -> int | None:
    """How many bytes had arrived, one at a time, when the bound was broken; None if it never was."""
    for arrived in range(1, len(stream) + 1):
        now = held(stream[:arrived], comments=comments)
        if max(now, held_at_line_end(stream[:arrived])) > limit:
            return arrived
    return None


def held_at_line_end(stream: bytes) -> int:
    """What was held when the last byte of ``stream`` ended a ``data`` line without a colon: only then is it known that
    there is one more data line.  0 if that is not so."""
    if stream[-1:] not in {b"\n", b"\r"}:
        return 0
    before = stream[:-1]
    return held(before + b": ") if split_lines(undecoded(before))[1] == "data" else 0


def decode(stream: bytes) -> str:
    """UTF-8 decode: replacement characters for what is not UTF-8; "one leading U+FEFF" is stripped."""
    text = stream.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def undecoded(stream: bytes) -> str:
    """One character a byte, so that lengths are bytes."""
    return stream.removeprefix(b"\xef\xbb\xbf").decode("latin-1")


def split_lines(text: str) -> tuple[list[str], str]:
    """The lines that have ended, and the start of one that has not.  A CR at the very end has ended its line."""
    lines: list[str] = []
    line = ""
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\r":
            lines.append(line)
            line = ""
            if position + 1 < len(text) and text[position + 1] == "\n":
                position += 1
        elif character == "\n":
            lines.append(line)
            line = ""
        else:
            line += character
        position += 1
    return lines, line


def name_and_value(line: str) -> tuple[str, str]:
    """Steps "If the line contains a U+003A COLON character" and "Otherwise", for a line that is not empty."""
    if ":" not in line:
        return line, ""
    colon = line.index(":")
    value = line[colon + 1 :]
    if value != "" and value[0] == " ":
        value = value[1:]
    return line[:colon], value


def is_ascii_digits(value: str) -> bool:
    return value != "" and all(character in "0123456789" for character in value)


def may_be_event_line(rest: str) -> bool:
    """Whether an unfinished line is, or may become, one of the lines that belong to an event."""
    return any(rest.startswith(name + ":") or name.startswith(rest) for name in ("data", "event", "id"))
