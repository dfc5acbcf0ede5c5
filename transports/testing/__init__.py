"""The server's side of ``/generate``, scripted: for the tests of this library and of its users.

A :class:`Script` says what was generated, a :class:`Profile` which server wrote it, a :class:`Schedule` when; and
:func:`encode` gives the bytes, with what a client must hold after each event.  Standard library only, and nothing of
``ssefold`` itself: the code under test takes no part in making its test data.
"""

from .asked import Asked, Request, read_request
from .body import KEEP_ALIVE, Body, Sent
from .encode import encode
from .engine import Counters
from .fake import FakeSGLang, Seen
from .fault import NO_FAULT, Fault
from .held import Held, finite
from .model import GreedyModel, Model, ScriptedModel
from .nonstream import HTTPFailureError, nonstream
from .outputs import Output, output_of
from .profiles import CUMULATIVE, INCREMENTAL, PROFILES, Profile, sglang
from .router import FakeRouter
from .schedule import Schedule, choose, eager, interval_sends, late
from .script import Finish, Routing, Script, Span
from .trim import head, tail
from .wirejson import DONE, dumps

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
