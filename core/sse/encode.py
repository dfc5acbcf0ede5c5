"""Write one server-sent event: the inverse of the parser, for fake servers and round-trip tests.

It must not know what a payload means.  What the format cannot carry is refused, never altered, so that parsing the
result always gives back what was put in.
"""

from __future__ import annotations

from .lines import MAX_RETRY_DIGITS


def encode_event(
    data: str | bytes, *, event: str | None = None, id: str | None = None, retry: int | None = None
) -> bytes:
    """The bytes of one event, blank line included; parsing them gives ``data``, ``event`` and ``id`` back.

    :param data: text (sent as UTF-8) or bytes; each LF in it starts a new ``data:`` line.
    :param event: the event type; None sends none, which is read as ``"message"``.
    :param id: the last event ID from here on; ``""`` clears it, None leaves it as it is.
    :param retry: the reconnection time in milliseconds.
    :raises ValueError: for what the format cannot carry: CR in ``data`` (it would come back as LF), a line end in
        ``event`` or ``id``, NUL in ``id``, an empty ``event``, a negative ``retry``, text that has no UTF-8 form.
    :raises TypeError: an argument has another type.
    """
    lines: list[bytes] = []
    for field, value in (("event", event), ("id", id)):
        if value is not None and not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{field} must be str or None, not {type(value).__name__}")
    if retry is not None and type(retry) is not int:
        raise TypeError(f"retry must be a whole number of milliseconds or None, not {type(retry).__name__}")
    if event is not None:
        if not event:
            raise ValueError('event is empty, which is read as "message": leave it out instead')
        lines.append(b"event: " + _one_line("event", event))
    if id is not None:
        if "\0" in id:
            raise ValueError(f"id has a NUL, so readers ignore it: {id!r}")
        lines.append(b"id: " + _one_line("id", id))
    if retry is not None:
        if not 0 <= retry < 10**MAX_RETRY_DIGITS:
            raise ValueError("retry must be a number of milliseconds, 0 or more, that a clock can wait for")
        lines.append(b"retry: %d" % retry)
    lines.extend(b"data: " + line for line in _payload(data).split(b"\n"))
    return b"\n".join(lines) + b"\n\n"


def _payload(data: str | bytes) -> bytes:
    if isinstance(data, str):
        data = _utf8("data", data)
    elif not isinstance(data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"data must be str or bytes, not {type(data).__name__}")
    if b"\r" in data:
        raise ValueError(f"data has a CR at byte {data.index(13)}, which is read back as LF: replace it, or escape it")
    return data


def _one_line(field: str, text: str) -> bytes:
    if "\n" in text or "\r" in text:
        raise ValueError(f"{field} has a line end in it and would be cut there: {text!r}")
    return _utf8(field, text)


def _utf8(field: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{field} has no UTF-8 form: {error.reason} at character {error.start}") from None
