"""The report of a folded body: lines for people, JSON for machines, and a page with charts."""

from __future__ import annotations

from .arrays import routing_summary, summaries, top_p_summary
from .lines import (
    as_dict,
    error_dict,
    error_line,
    field,
    finding_line,
    finish_words,
    is_told,
    mean_logprob,
    report_lines,
    sent_text,
)
from .page import html_report
from .profile import Guess, guess_profile

__all__ = [
    "Guess",
    "as_dict",
    "error_dict",
    "error_line",
    "field",
    "finding_line",
    "finish_words",
    "guess_profile",
    "html_report",
    "is_told",
    "mean_logprob",
    "report_lines",
    "routing_summary",
    "sent_text",
    "summaries",
    "top_p_summary",
]
