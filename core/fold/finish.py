"""Why an output ended, as typed facts.

``meta_info.finish_reason`` has one shape per cause.  Sources in SGLang: ``managers/schedule_batch.py``, the ``to_json``
of its classes ``FINISH_*`` and ``FINISHED_*``, and ``managers/tokenizer_manager.py::_handle_abort_req``.

=================================================================  ====================================================
``{"type": "stop", "matched": 2}``                                 stop token or EOS (a list of ids by its type)
``{"type": "stop", "matched": "END"}``                             stop string, or the source of a stop regex
``{"type": "stop", "matched": "NaN happened"}``                    the sampler drew an id outside the vocabulary
``{"type": "length", "length": 300}``                              ``max_new_tokens`` reached
``{"type": "abort", "message": ..., "status_code": null, ...}``    ``/abort_request`` or pause, while running
``{"type": "abort", "message": "Abort in waiting queue"}``         the same, while queued or retracted
``{"type": "abort", "status_code": 503, "message": ...}``          queue full, timeout, priority: try again
``{"type": "abort", ..., "status_code": 400, "err_type": ...}``    validation, grammar, out of memory
``"stop"``, ``"length"``                                           gRPC gateway: the type alone
=================================================================  ====================================================

This module knows one value and nothing of the chunk around it.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

from ..errors import PayloadError
from ..views import copy_json, freeze

# schedule_batch.py::_check_vocab_boundary_finish
_NAN = "NaN happened"
# 429 comes from gateways in front of the server.
_RETRYABLE = (429, 503)


class FinishReason:
    """Why an output ended; immutable, hashable, picklable.  Equal when the server's own values are.

    :ivar type: ``"stop"``, ``"length"``, ``"abort"``, or whatever a newer server says.
    :ivar matched: id, string or ids that stopped it, or None.
    :ivar length: the limit that was reached, in tokens, or None.
    :ivar message: the server's words on an abort, or None.
    :ivar status_code: HTTP-like status of an abort, or None.
    :ivar err_type: the server's name of an error, or None.
    :ivar raw: the value as it came, read-only.
    """

    __slots__ = ("err_type", "length", "matched", "message", "raw", "status_code", "type")

    type: str
    matched: int | str | tuple[int, ...] | None
    length: int | None
    message: str | None
    status_code: int | None
    err_type: str | None
    raw: Any

    def __init__(self, raw: Any) -> None:
        # Its own copy: a reason outlives the chunk, which is the caller's.
        own = copy_json(raw, field="meta_info.finish_reason")
        fields: dict[str, Any] = {"type": own} if isinstance(own, str) else own
        if not isinstance(fields, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PayloadError(f"meta_info.finish_reason must be an object, a string or null, got {_kind(raw)}")
        put = object.__setattr__
        kind = _text(fields, "type")
        if not kind:
            raise PayloadError("meta_info.finish_reason has no type: expected stop, length, abort or null")
        put(self, "type", kind)
        put(self, "matched", _matched(fields))
        put(self, "length", _integer(fields, "length"))
        put(self, "message", _text(fields, "message"))
        put(self, "status_code", _integer(fields, "status_code"))
        put(self, "err_type", _text(fields, "err_type"))
        put(self, "raw", freeze(own))

    @classmethod
    def parse(cls, raw: Any) -> FinishReason | None:
        """Read ``meta_info.finish_reason``; None while the output continues.

        :raises PayloadError: not an object, a string or null; no ``type``; a field of the wrong type.
        """
        return None if raw is None else cls(raw)

    @property
    def is_failure(self) -> bool:
        """The output is no sample: the sampler produced NaN, or the server refused or lost the request.

        A plain abort is no failure: it was requested, and the tokens up to there are good.
        """
        if self.type == "abort":
            return self.err_type is not None or (self.status_code is not None and self.status_code >= 400)
        return self.type == "stop" and self.matched == _NAN

    @property
    def retryable(self) -> bool:
        """The same request may succeed later: an abort with status 503 (queue full, timeout) or 429."""
        return self.type == "abort" and self.status_code in _RETRYABLE

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FinishReason):
            return NotImplemented
        return bool(self.raw == other.raw)

    def __hash__(self) -> int:
        return hash((self.type, self.matched, self.length, self.message, self.status_code))

    def __repr__(self) -> str:
        facts = (
            (name, getattr(self, name)) for name in ("type", "matched", "length", "message", "status_code", "err_type")
        )
        return f"FinishReason({', '.join(f'{name}={value!r}' for name, value in facts if value is not None)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FinishReason, (copy_json(self.raw),)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"FinishReason is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"FinishReason is immutable: {name} cannot be deleted")


def _text(fields: dict[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is None or isinstance(value, str):
        return value
    raise PayloadError(f"meta_info.finish_reason.{key} must be a string or null, got {_kind(value)}")


def _integer(fields: dict[str, Any], key: str) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if _is_integer(value) and int(value).bit_length() < 64:
        return int(value)  # `http.HTTPStatus` is an int that prints as text
    raise PayloadError(f"meta_info.finish_reason.{key} must be an integer or null, got {_kind(value)}")


def _matched(fields: dict[str, Any]) -> int | str | tuple[int, ...] | None:
    value = fields.get("matched")
    if value is None or isinstance(value, str) or _is_integer(value):
        return value
    if isinstance(value, list):
        ids = cast("list[int]", value)
        if all(map(_is_integer, ids)):
            return tuple(ids)
    wrong = _kind(fields["matched"])
    raise PayloadError(f"meta_info.finish_reason.matched must be an id, a string, a list of ids or null, got {wrong}")


def _is_integer(value: Any) -> bool:
    # A flag is an int in Python, and neither a token nor a status.
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
    return repr(value) if isinstance(value, (bool, float)) else type(value).__name__
