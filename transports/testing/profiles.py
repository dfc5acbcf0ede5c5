"""Which server writes the stream: one profile per behaviour that was ever released.

A :class:`Profile` is a server version with its start flags, and answers what that server does: which lanes are deltas,
which keys exist, what an abort looks like.  "since X" is the first wheel that has it; the facts come from
``sglang/srt/managers/tokenizer_manager.py`` unless said otherwise.  How chunks are made of these answers is the matter
of ``wire/manager.py`` (SGLang itself) and ``wire/gateways.py`` (what stands in front of it or replaces it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Version: TypeAlias = "tuple[int, int, int]"
Family = Literal["sglang", "rust", "grpc", "grpc_pd", "http_pd", "dynamo"]


@dataclass(frozen=True)
class Profile:
    """One server as its clients see it.

    :ivar family: who renders the JSON: SGLang's own tokenizer manager, its Rust server, the gRPC gateway (``_pd``: with
        a prefill and a decode worker), the HTTP gateway in front of such a pair, or Dynamo.
    :ivar version: of SGLang.
    :ivar incremental: ``--incremental-streaming-output``; before 0.5.10 its older name ``--stream-output``.
    :ivar tokens_only: ``--skip-tokenizer-init``.
    :ivar slime: the image patched by slime (top-p rows, no weight spans).
    """

    name: str
    version: Version
    family: Family = "sglang"
    incremental: bool = False
    tokens_only: bool = False
    slime: bool = False

    # ---- lanes

    @property
    def has_ids(self) -> bool:
        """``output_ids`` exist (in text mode since 0.5.1)."""
        return self.tokens_only or self.version >= (0, 5, 1)

    @property
    def ids_incremental(self) -> bool:
        """``output_ids`` are deltas: by default in 0.5.1 to 0.5.5, and wherever the flag is set."""
        return self.incremental or (not self.tokens_only and (0, 5, 1) <= self.version < (0, 5, 6))

    @property
    def text_incremental(self) -> bool:
        """``text`` is a delta: the flag reached the text in 0.5.10."""
        return self.incremental and self.version >= (0, 5, 10)

    @property
    def rows_incremental(self) -> bool:
        """Logprob rows are deltas (``_slice_streaming_output_meta_info``, since 0.5.11)."""
        return self.incremental and self.version >= (0, 5, 11)

    @property
    def custom(self) -> Literal["absent", "snapshot", "delta", "list"]:
        """``customized_info``: whole lists of the scheduler (0.5.8), new parts (to 0.5.12), accumulated."""
        if self.version < (0, 5, 8):
            return "absent"
        if self.version < (0, 5, 9):
            return "snapshot"
        return "delta" if self.version < (0, 5, 13) else "list"

    @property
    def prompt_tail(self) -> int:
        """How many prompt ids lead the first ``output_ids`` (``detokenizer_manager``: ``output_ids=decode_ids``)."""
        return 5 if (0, 5, 1) <= self.version < (0, 5, 5) and not self.tokens_only else 0

    # ---- a reader slower than the scheduler

    @property
    def coalesces(self) -> bool:
        """Pending deltas are joined; elsewhere only the newest chunk is delivered."""
        return self.incremental and self.version >= (0, 5, 10)

    @property
    def live_rows(self) -> bool:
        """Rows are the server's own growing list until they are serialised (since 0.5.8)."""
        return self.version >= (0, 5, 8)

    @property
    def live_ids(self) -> bool:
        """So are cumulative ids of all but the last chunk (since 0.5.11; 0.4.6 with ``tokens_only``)."""
        return self.version >= (0, 5, 11) or self.version < (0, 4, 10)

    @property
    def late_text(self) -> bool:
        """Cumulative text is read when the chunk is delivered, not when it is made (since 0.5.11)."""
        return self.version >= (0, 5, 11)

    # ---- keys

    @property
    def weight_version(self) -> bool:
        """Since 0.5.1."""
        return self.version >= (0, 5, 1)

    @property
    def weight_versions(self) -> bool:
        """Spans in the last chunk (``utils/weight_versions.py``, since 0.5.19)."""
        return self.version >= (0, 5, 19) and not self.slime

    @property
    def retractions_key(self) -> str | None:
        """``total_retractions`` (since 0.5.5), ``num_retractions`` (since 0.5.12)."""
        if self.version < (0, 5, 5):
            return None
        return "num_retractions" if self.version >= (0, 5, 12) else "total_retractions"

    @property
    def rows_length(self) -> bool:
        """``output_token_logprobs_length``, ``reasoning_tokens`` and ``dp_rank`` came with 0.5.10."""
        return self.version >= (0, 5, 10)

    @property
    def cache_details(self) -> bool:
        """``cached_tokens_details`` (since 0.5.9)."""
        return self.version >= (0, 5, 9)

    @property
    def sampling_mask(self) -> bool:
        """``return_sampling_mask`` (since 0.5.16)."""
        return self.version >= (0, 5, 16)

    @property
    def prompt_token_ids(self) -> bool:
        """``return_prompt_token_ids`` (since 0.5.13)."""
        return self.version >= (0, 5, 13)

    @property
    def null_hidden_states(self) -> bool:
        """``hidden_states`` is ``null`` where there are none yet (before 0.5.13)."""
        return self.version < (0, 5, 13)

    @property
    def modal_tokens(self) -> bool:
        """``image_tokens`` and its like (since 0.5.14)."""
        return self.version >= (0, 5, 14)

    @property
    def routed_experts(self) -> Literal["absent", "null", "terminal"]:
        """Since 0.5.7; ``null`` in chunks before the last up to 0.5.9."""
        if self.version < (0, 5, 7):
            return "absent"
        return "null" if self.version < (0, 5, 10) else "terminal"

    @property
    def crops_routing(self) -> bool:
        """``routed_experts_start_len`` is honoured (since 0.5.12; accepted and ignored from 0.5.8)."""
        return self.version >= (0, 5, 12)

    @property
    def indexer_topk(self) -> bool:
        """Since 0.5.12."""
        return self.version >= (0, 5, 12)

    @property
    def sent_key(self) -> str | None:
        """The key of the first delivered chunk's time: since 0.5.5, today's name since 0.5.6."""
        if self.version < (0, 5, 5):
            return None
        return "response_sent_to_client_ts" if self.version >= (0, 5, 6) else "response_sent_ts"

    @property
    def speculation_last(self) -> bool:
        """Speculative decoding's keys follow ``e2e_latency`` (since 0.5.7) rather than lead it."""
        return self.version >= (0, 5, 7)

    @property
    def cuts_extra_rows(self) -> bool:
        """Rows are cut to ``max(len(ids), 1)`` (scheduler, since 0.5.10)."""
        return self.version >= (0, 5, 10)

    # ---- text

    @property
    def cuts_untrimmed(self) -> bool:
        """With ``no_stop_trim`` text after the stop string is dropped (``trim_matched_stop``, since 0.5.14)."""
        return self.version >= (0, 5, 14)

    @property
    def trims_token_zero(self) -> bool:
        """A stop token of id 0 is not decoded (since 0.5.21)."""
        return self.version >= (0, 5, 21)

    # ---- ends

    @property
    def aborts_raise(self) -> bool:
        """An abort with a status is raised inside the stream: error event or torn body (before 0.5.6)."""
        return self.version < (0, 5, 6)

    @property
    def queue_abort(self) -> Literal["bare", "last", "full"]:
        """Ids of a queue abort: no such key (before 0.5.5), ``[last]``, or all of them (cumulative since 0.5.20)."""
        if self.version < (0, 5, 5):
            return "bare"
        return "full" if self.version >= (0, 5, 20) and not self.incremental else "last"

    @property
    def rejected_rows(self) -> bool:
        """A rejected request has logprob keys, empty ones (since 0.5.19)."""
        return self.version >= (0, 5, 19)

    @property
    def typed_errors(self) -> bool:
        """Error events say type, code and retryable (since 0.5.13)."""
        return self.version >= (0, 5, 13)

    def error(self, message: str, *, status_code: int = 400) -> dict[str, Any]:
        """What an error event for the whole stream says (``http_server.stream_results``)."""
        if self.family == "rust":
            return {"message": message, "code": status_code}
        if self.family in ("grpc", "grpc_pd"):
            return {"message": message, "type": "internal_error"}
        if self.family == "dynamo" or not self.typed_errors:
            return {"message": message}
        return {"message": message, "type": "invalid_request_error", "code": status_code, "retryable": False}

    # ---- the whole

    @property
    def loses_ids(self) -> bool:
        """A slow reader never sees the ids of the chunks between."""
        return self.has_ids and self.ids_incremental and not self.coalesces and self.family == "sglang"

    def __str__(self) -> str:
        return self.name


def sglang(
    version: str, *, incremental: bool = False, tokens_only: bool = False, slime: bool = False, name: str | None = None
) -> Profile:
    """The profile of any SGLang version from 0.4.6 to 0.5.23 (``"0.5.15.post1"`` counts as 0.5.15)."""
    major, minor, patch = (int(part) for part in version.split(".")[:3])
    flags = [("incremental", incremental), ("tokens_only", tokens_only), ("slime", slime)]
    label = "-".join([version, *(flag for flag, is_set in flags if is_set)])
    return Profile(name or label, (major, minor, patch), "sglang", incremental, tokens_only, slime)


_CUMULATIVE_VERSIONS = (
    "0.4.6", "0.4.10", "0.5.1", "0.5.3", "0.5.4", "0.5.5", "0.5.6", "0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11",
    "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.16", "0.5.18", "0.5.19", "0.5.20", "0.5.21", "0.5.23",
)  # fmt: skip
_INCREMENTAL_VERSIONS = (
    "0.5.6", "0.5.7", "0.5.8", "0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.16", "0.5.18",
    "0.5.19", "0.5.20", "0.5.21", "0.5.23",
)  # fmt: skip
_TOKENS_ONLY_VERSIONS = ("0.4.6", "0.5.3", "0.5.5", "0.5.9", "0.5.10", "0.5.12", "0.5.23")

PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        *(sglang(version) for version in _CUMULATIVE_VERSIONS),
        *(sglang(version, incremental=True) for version in _INCREMENTAL_VERSIONS),
        *(
            sglang(version, incremental=incremental, tokens_only=True)
            for version in _TOKENS_ONLY_VERSIONS
            for incremental in (False, True)
        ),
        sglang("0.5.15.post1", slime=True),
        sglang("0.5.15.post1", incremental=True, slime=True),
        Profile("rust", (0, 5, 23), "rust"),
        Profile("rust-incremental", (0, 5, 23), "rust", incremental=True),
        Profile("grpc-gateway", (0, 5, 23), "grpc"),
        Profile("grpc-gateway-pd", (0, 5, 23), "grpc_pd"),
        Profile("http-gateway-pd", (0, 5, 23), "http_pd"),
        Profile("http-gateway-pd-incremental", (0, 5, 23), "http_pd", incremental=True),
        Profile("dynamo", (0, 5, 23), "dynamo", incremental=True),
    )
}
"""Every distinct server behaviour by name."""

CUMULATIVE = PROFILES["0.5.23"]
INCREMENTAL = PROFILES["0.5.23-incremental"]
