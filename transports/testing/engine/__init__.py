"""What a fake server does with a request before any byte is written: read it, refuse it, generate, schedule, abort.

``asked`` reads a payload, ``refusals`` are the server's, a ``model`` writes the script, and the ``scheduler`` runs it
as a ``job``.  Nothing here knows HTTP; :mod:`~ssefold.transports.testing.http` calls it.
"""

from __future__ import annotations

from .asked import Asked, Request, read_request
from .fault import NO_FAULT, Fault
from .job import Job
from .model import GreedyModel, Model, ScriptedModel
from .refusals import SchemaError, StumbleError, check_length, check_shape
from .scheduler import Counters, Scheduler

__all__ = [
    "NO_FAULT",
    "Asked",
    "Counters",
    "Fault",
    "GreedyModel",
    "Job",
    "Model",
    "Request",
    "Scheduler",
    "SchemaError",
    "ScriptedModel",
    "StumbleError",
    "check_length",
    "check_shape",
    "read_request",
]
