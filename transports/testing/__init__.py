"""The server's side of ``/generate``, scripted: for the tests of this library and of its users.

A :class:`Script` says what was generated, a :class:`Profile` which server wrote it, a :class:`Schedule` when; and
:func:`encode` gives the bytes, with what a client must hold after each event.  Standard library only, and nothing of
``ssefold`` itself: the code under test takes no part in making its test data.
"""

from .engine import (
    NO_FAULT,
    Asked,
    Counters,
    Fault,
    GreedyModel,
    Model,
    Request,
    ScriptedModel,
    read_request,
)
from .http import FakeRouter, FakeSGLang, Seen
from .profiles import CUMULATIVE, INCREMENTAL, PROFILES, Profile, sglang
from .script import Finish, Routing, Script, Span
from .trim import head, tail
from .wire import (
    DONE,
    KEEP_ALIVE,
    Body,
    Held,
    HTTPFailureError,
    Output,
    Schedule,
    Sent,
    choose,
    dumps,
    eager,
    encode,
    finite,
    interval_sends,
    late,
    nonstream,
    output_of,
)

__all__ = [
    "CUMULATIVE",
    "DONE",
    "INCREMENTAL",
    "KEEP_ALIVE",
    "NO_FAULT",
    "PROFILES",
    "Asked",
    "Body",
    "Counters",
    "FakeRouter",
    "FakeSGLang",
    "Fault",
    "Finish",
    "GreedyModel",
    "HTTPFailureError",
    "Held",
    "Model",
    "Output",
    "Profile",
    "Request",
    "Routing",
    "Schedule",
    "Script",
    "ScriptedModel",
    "Seen",
    "Sent",
    "Span",
    "choose",
    "dumps",
    "eager",
    "encode",
    "finite",
    "head",
    "interval_sends",
    "late",
    "nonstream",
    "output_of",
    "read_request",
    "sglang",
    "tail",
]
