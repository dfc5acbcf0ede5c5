"""One output: a parsed chunk in, an update out.

``read_chunk`` names and types the fields, ``plan_chunk`` places every lane and changes nothing, ``commit`` changes the
state and cannot fail.  Knows nothing of bytes on a wire, of events and of other outputs.
"""

from __future__ import annotations

from .chunk import READ_KEYS, read_chunk
from .commit import commit, grow, nothing_new
from .extras import ALIGNED
from .failure import failure_of, server_error
from .finish import FinishReason
from .lanes import CUMULATIVE, INCREMENTAL, Lane, Mode
from .native import native_response, text_of
from .payload import MAX_DEPTH, BadJSONError, json_backend, parse_json, parse_payload
from .plan import plan_chunk
from .rows import parse_rows, plain_columns
from .state import OutputState
from .tokens import parse_ids

__all__ = [
    "ALIGNED",
    "CUMULATIVE",
    "INCREMENTAL",
    "MAX_DEPTH",
    "READ_KEYS",
    "BadJSONError",
    "FinishReason",
    "Lane",
    "Mode",
    "OutputState",
    "commit",
    "failure_of",
    "grow",
    "json_backend",
    "native_response",
    "nothing_new",
    "parse_ids",
    "parse_json",
    "parse_payload",
    "parse_rows",
    "plain_columns",
    "plan_chunk",
    "read_chunk",
    "server_error",
    "text_of",
]
