"""The model of the demo: words in the order of a small grammar, chosen by a hash of everything before them.

One wrong token anywhere, and all that follows is another text: that is what makes resuming worth comparing.  Knows
nothing of servers and streams.
"""

from __future__ import annotations

from hashlib import blake2b

from ssefold.transports.testing import Asked, Finish, Routing, Script

# A clause: article, adjective, who, does, article, adjective, what, and how it goes on.
_WORDS = (
    (" the", " a", " one", " every"),
    (" patient", " quiet", " curious", " young", " sleepy", " brave"),
    (" gradient", " robot", " lighthouse", " librarian", " fox", " Übersetzerin", " 猫"),
    (" follows", " remembers", " paints", " samples", " counts", " unfolds"),
    (" the", " a", " some", " no"),
    (" small", " forgotten", " half-finished", " golden", " recursive", " gentle"),
    (" river", " story", " reward", " café", " token", " [map]", " 詩"),
    (",", ".", " and", " while", " 🙂"),
)
_FIRST_ID = 100
_PER_KIND = 10
_LAYERS, _TOP_K, _EXPERTS = 2, 4, 64

VOCABULARY = {
    _FIRST_ID + kind * _PER_KIND + place: word for kind, words in enumerate(_WORDS) for place, word in enumerate(words)
}

ROUTING_SHAPE = (_LAYERS, _TOP_K)


def demo_model(asked: Asked) -> Script:
    """The whole answer, with everything that was asked for about each token."""
    prompt = asked.prompt_ids
    fed = list(prompt)
    ids: list[int] = []
    digests: list[bytes] = []
    for _ in range(asked.max_new_tokens):
        digest = blake2b(b"".join(token.to_bytes(8, "little") for token in fed), digest_size=8).digest()
        token = _next(fed[-1] if fed else 0, digest[0])
        digests.append(digest)
        ids.append(token)
        fed.append(token)
    return Script(
        token_ids=tuple(ids),
        pieces=tuple(VOCABULARY[token].encode() for token in ids),
        finish=Finish.length(asked.max_new_tokens),
        rid=asked.rid,
        prompt_ids=prompt,
        logprobs=tuple(map(_logprob, digests)) if asked.return_logprob else None,
        top_p_rows=tuple(map(_kept, digests, ids)) if asked.return_top_p else (),
        routed_experts=_routing(fed[:-1], asked.routed_experts_start_len) if asked.return_routed_experts else None,
    )


def _next(last: int, choice: int) -> int:
    kind = (last - _FIRST_ID) // _PER_KIND + 1 if last in VOCABULARY else 0
    kind %= len(_WORDS)
    return _FIRST_ID + kind * _PER_KIND + choice % len(_WORDS[kind])


def _logprob(digest: bytes) -> float:
    # Mostly sure of itself, now and then surprised.
    return -((digest[1] / 256) ** 4 * 6 + digest[2] / 1024)


def _kept(digest: bytes, token: int) -> tuple[int, ...]:
    return tuple(token - token % _PER_KIND + (token + rank) % _PER_KIND for rank in range(1 + digest[3] % 4))


def _routing(fed: list[int], start_len: int) -> Routing:
    rows = tuple(
        tuple((token * 7 + position * 3 + column * 11) % _EXPERTS for column in range(_LAYERS * _TOP_K))
        for position, token in enumerate(fed)
    )
    return Routing(rows, _LAYERS, _TOP_K, start_len)
