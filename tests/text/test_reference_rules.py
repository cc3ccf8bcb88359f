"""compatible=True reproduces the reference's strings, quirks included."""

from __future__ import annotations

import json

import pytest

from cosy_engine.text.normalize import TextNormalizer
from cosy_engine.text.reference_rules import merge_pieces, reference_segments, reference_text, split_pieces
from tests.golden_data import FOLDER

CASES = json.loads((FOLDER / "text_cases.json").read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["text"][:24]))
@pytest.mark.parametrize("front_end", ["none", "wetext"])
def test_golden_strings_are_reproduced(case, front_end):
    wfst = TextNormalizer().wfst if front_end == "wetext" else None
    split, whole = case[f"{front_end}_split"], case[f"{front_end}_nosplit"]
    if isinstance(split, dict):  # the reference raises; ours has nothing to speak
        assert reference_segments(case["text"], len, wfst) == []
        return
    assert reference_segments(case["text"], len, wfst) == split
    assert reference_text(case["text"], wfst) == whole


@pytest.mark.parametrize(
    ("text", "limits", "expected"),
    [
        ('你好。"世界"。再见', (3, 1, 1), ['你好。"', '世界"。', "再见。"]),
        ("他说：”好“。走", (1, 0, 1), ["他说：”", "好“。", "走。"]),
        ("。。你好", (80, 60, 20), ["你好。"]),
    ],
)
def test_published_splits(text, limits, expected):
    assert merge_pieces(split_pieces(text, set("。？！；：、.?!;"), "。"), len, *limits) == expected
