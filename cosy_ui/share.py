"""What the terminal says of a share link: the link, its expiry and a QR code, or why there is none."""

from __future__ import annotations

import io
import time
from pathlib import Path

LINK_S = 7 * 24 * 3600  # Gradio's links live for up to a week
LOCAL = "The page goes on at its local address."


def link_words(link: str, now_s: float) -> str:
    """now_s: wall clock, as from time.time()."""
    import segno

    drawn = io.StringIO()
    segno.make(link, micro=False).terminal(drawn, compact=True, border=2)
    ends = time.strftime("%Y-%m-%d %H:%M", time.localtime(now_s + LINK_S))
    return f"{drawn.getvalue()}Shared at {link}\nThe link ends with this program, on {ends} at the latest."


def no_link_words(helper: Path) -> str:
    """helper: Gradio's tunnel program."""
    if not helper.exists():
        return f"No share link: its helper program is not here and could not be fetched ({helper}): check the network. {LOCAL}"
    return f"No share link: the share server could not be reached: check the network. {LOCAL}"
