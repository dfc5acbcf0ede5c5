"""The options of every subcommand that folds a recording.

Knows click; knows no files.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from .fold import MODES, Folding


def fold_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--mode`` and ``--no-fast-path``; the function gets them together, as ``how``."""

    @click.option(
        "--mode", type=click.Choice(MODES), default="auto", show_default=True, help="How the server was started."
    )
    @click.option("--no-fast-path", is_flag=True, help="Parse every payload in full: slower, and the same result.")
    @functools.wraps(function)
    def with_how(*args: Any, mode: Any, no_fast_path: bool, **kwargs: Any) -> Any:
        return function(*args, how=Folding(mode, not no_fast_path), **kwargs)

    return with_how
