"""No user, password, query or fragment of an url is ever shown, however broken the url is."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ssefold.transports._engine import printable_url, split_credentials, without_urls

HOSTS = ["127.0.0.1", "localhost:30000", "[::1]:8", "worker-7.example.com", "bücher.example"]
# Whatever somebody may take for a password, quoted or not.
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Z", "C"]), min_size=1, max_size=12).map(
    lambda word: f"s3cr3t{word}s3cr3t"
)


@given(words, words, words, st.sampled_from(HOSTS), st.sampled_from(["http://", "https://", "//", ""]))
def test_secrets_are_not_shown(user: str, password: str, query: str, host: str, scheme: str) -> None:
    shown = printable_url(f"{scheme}{user}:{password}@{host}/generate?key={query}#{query}")
    assert "s3cr3t" not in shown or not {"/", "?", "#", "\\"}.isdisjoint(user)
    if set("/?#:@[]\\").isdisjoint(user + password):
        assert shown == f"{scheme}{host}/generate"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:hunter2@127.0.0.1:30000/base/generate?x=1", "http://127.0.0.1:30000/base/generate"),
        ("/generate?token=1", "/generate"),
        ("generate", "generate"),
        ("http://[", "http://(invalid url)"),
        ("http://user:hun/ter2@host/", "http://(invalid url)"),
        ("http://user:hun?ter2@host/", "http://(invalid url)"),
        ("http://host/models/@v1?mail=a@b", "http://host/models/@v1"),
        ("http://a@b@host/", "http://host/"),
        (None, "None"),
        ("", ""),
    ],
)
def test_what_is_shown(url: object, shown: str) -> None:
    assert printable_url(url) == shown


def test_other_peoples_words() -> None:
    url = "http://user:hunter2@127.0.0.1:1/generate?key=s3cret"
    said = f"400, message='no', url={url!r}; sent key=s3cret to http://a:b@c/?d"
    assert without_urls(said, url) == "400, message='no', url='http://127.0.0.1:1/generate'; sent ... to http://c/"
    assert without_urls("Cannot connect", "http://host/?") == "Cannot connect"


def test_credentials_become_a_header() -> None:
    assert split_credentials("http://h/x?y") == ("http://h/x?y", None)
    assert split_credentials("http://[") == ("http://[", None)
    url, header = split_credentials("http://us%3Aer:p%40ss@h:1/x?y")
    assert url == "http://h:1/x?y"
    assert header is not None
    assert base64.b64decode(header.removeprefix("Basic ")) == b"us:er:p@ss"
