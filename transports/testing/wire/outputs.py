"""Which class plays which server: the one place where a profile's family is looked at to make an output's state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from .gateways import GrpcGatewayOutput, RustOutput
from .manager import ManagedOutput

if TYPE_CHECKING:
    from ..profiles import Profile
    from ..script import Script
    from .held import Held


class Output(Protocol):
    """One output inside a server, from the scheduler's outputs to the chunks that its reader gets."""

    @property
    def pending(self) -> bool:
        """Something waits to be taken."""
        ...

    def send(self, new_tokens: int, *, last: bool) -> None:
        """The scheduler sends so many new tokens; ``last`` ends the output."""
        ...

    def abort(self) -> None:
        """The request was waiting or retracted, and is gone."""
        ...

    def take(self) -> list[dict[str, Any]]:
        """What the reader gets now, in order; lists in it may still grow until it is serialised."""
        ...

    def held_after(self, payload: dict[str, Any]) -> Held:
        """What a perfect client holds once this chunk, as it was serialised, has arrived."""
        ...


def output_of(script: Script, profile: Profile, index: int = 0) -> Output:
    """The state of one output of a streaming request on this server."""
    if profile.family == "rust":
        return RustOutput(script, profile)
    if profile.family in ("grpc", "grpc_pd"):
        return GrpcGatewayOutput(script, profile, index=index)
    if profile.family == "http_pd":
        # A decode worker has no prompt logprobs (output_streamer: "Decode server does not send input logprobs").
        script = replace(script, input_logprobs=(), input_top_logprobs=(), input_ids_logprobs=())
    return ManagedOutput(script, profile)
