"""Does any input break the text frontend or the audio loader, or keep it busy for long?

    python -m tools.fuzz text --seconds 600 --seed 1
    python -m tools.fuzz audio --seconds 600 --seed 1

Inputs follow from the seed, so a find can be repeated. Allowed are results and named errors (CosyError); everything
else is printed with its input, as is what took longer than `--slow-s`. Exit status 1 when anything was found. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
import time
import traceback
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from cosy_engine.errors import CosyError

UNITS = """
<| |> <|endofprompt|> <|im_start|> <|< [ ] [laughter] [breath] <strong> </strong> <break time="1s"/> <a b= <!-- --> < > | ｜ 《 》
1 12 2024 3.14 1,000 007 1e9 v2.5.1 192.168.1.1 GPT-4.1 2022年12月29日 9点-11点 $5 5% 5ml 10:30 1/2 -3 +86 138 A/B IV MCMXC
http://a.b/c?d=e a@b.cn www. .com Dr. e.g. U.S. ... …… 。 ， 、 ！ ? ! . , ; : - — ~ ^ _ * # @ & = / \\ ( ) { } " ' “ ” ‘ ’ 「 」
你好 世界 龘 訇 𠀀 a b the and Fläche l'été ¿qué? Привет あと つ 今日 시 안녕 ไทย العربية हिन्दी עברית ﷺ ß ﬁ Ａ １ ㎡ ㏒ ⅷ ½ ² 𝟘 ٣ १ ๓
\u200b \u200d \ufeff \u00ad \u202e \u0301 \u0345 \u1160 \ud800 \x00 \x1b \r \n \r\n \t \u00a0 \u3000 \u2028 😀 👩‍👩‍👧 🇩🇪 ❤️ ①
""".split(" ")  # noqa: SIM905 - a table that stays readable
UNITS = [u for unit in UNITS for u in unit.split("\n") if u] + [" ", "\n", "\n\n", "\r\n", "\t", "\x85", "  "]


def text_input(draw: random.Random) -> str:
    """Units of trouble in a row, a page of one unit, random code points, or a mixture; up to 5,000 characters."""
    kind = draw.randrange(5)
    if kind == 0:
        text = "".join(draw.choice(UNITS) for _ in range(draw.randrange(1, 60)))
    elif kind == 1:  # a whole page of a short pattern: what is not linear shows here
        pattern = "".join(draw.choice(UNITS) for _ in range(draw.randrange(1, 5)))
        text = pattern * (5000 // max(1, len(pattern)))
    elif kind == 2:
        text = "".join(chr(draw.randrange(0x110000)) for _ in range(draw.randrange(1, 80)))
    elif kind == 3:
        few = [draw.choice(UNITS) for _ in range(4)]
        text = "".join(draw.choice(few) for _ in range(draw.randrange(1, 2500)))
    else:
        head, tail = draw.choice(UNITS), draw.choice(UNITS)
        text = head * draw.randrange(2500) + draw.choice(UNITS) + tail * draw.randrange(2500)
    return text[:5000]


def text_target(folder: Path) -> Callable[[random.Random], object]:
    """Plans a text for both releases with and without wetext, and checks that its letters reach the segments."""
    from cosy_engine.text.frontend import TextFrontend
    from cosy_engine.text.normalize import TextNormalizer
    from cosy_engine.text.tokenizer import TextTokenizer
    from tools.miniature.tokenizer import make_tiny_tokenizer

    make_tiny_tokenizer(folder / "CosyVoice-BlankEN")
    frontends = []
    for release, wetext in (("v3", True), ("v2", False), ("v3", False)):
        tokenizer = TextTokenizer(folder / "CosyVoice-BlankEN", release)
        normal = TextNormalizer(tokenizer.marks, use_wetext=wetext)
        frontends.append(TextFrontend(tokenizer, SimpleNamespace(needs_prefix=release == "v3"), normal))

    def run(draw: random.Random) -> str:
        text = text_input(draw)
        frontend = draw.choice(frontends)
        run.input = text
        try:
            plan = frontend.plan(text)
        except CosyError:
            return "refused"
        for segment in plan.segments:
            ids = frontend.segment_ids(segment, []).ids
            assert ids, "a segment without ids"
            assert not any(unicodedata.category(c) == "Cs" for c in segment.text), "half a character"
        frontend.transcript(text[:300])
        list(frontend.pieces([text[i : i + 7] for i in range(0, min(len(text), 300), 7)]))
        return "planned"

    return run


def audio_target(folder: Path) -> Callable[[random.Random], object]:
    """Damages good files of every container: bytes changed, cut, doubled, moved, or header fields set to extremes."""
    import soundfile

    from cosy_engine.audio.clip_report import describe
    from cosy_engine.audio.waveform import read_clip

    t = np.arange(24000) / 24000
    tone = (0.3 * np.sin(2 * np.pi * 200 * t) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t))).astype(np.float32)
    good: list[bytes] = [(p).read_bytes() for p in Path("tests/audio").glob("*.opus")]
    for kind, subtype in (
        ("WAV", "PCM_16"), ("WAV", "FLOAT"), ("WAV", "PCM_24"), ("WAV", "ULAW"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"),
        ("MP3", None), ("AIFF", "PCM_16"), ("CAF", "PCM_16"), ("AU", "PCM_16"), ("W64", "PCM_16"), ("RF64", "PCM_16"),
    ):  # fmt: skip
        for channels in (1, 2, 6):
            out = io.BytesIO()
            try:
                soundfile.write(out, np.repeat(tone[:, None], channels, 1), 24000, format=kind, subtype=subtype)
            except Exception:
                continue  # a container that holds fewer channels
            good.append(out.getvalue())
    from tests.audio.conftest import muxed

    for container, codec in (("mp4", "aac"), ("matroska", "libopus"), ("webm", "libopus"), ("mp4", "alac")):
        for video in (False, True):
            try:
                good.append(muxed(tone, 48000, container, codec, video=video))
            except Exception:
                continue

    def run(draw: random.Random) -> str:
        data = bytearray(draw.choice(good))
        for _ in range(draw.randrange(1, 6)):
            kind = draw.randrange(6)
            at = draw.randrange(len(data) if draw.random() < 0.4 else min(200, len(data)))  # headers are at the start
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at : at + 4] = draw.choice(
                    [b"\xff" * 4, b"\0" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\x80", b"\1\0\0\0"]
                )
            elif kind == 2:
                del data[max(1, at) :]
            elif kind == 3:
                data[at:at] = data[at : at + draw.randrange(1, 400)]
            elif kind == 4:
                del data[at : at + draw.randrange(1, 400)]
            else:
                data[at : at + 8] = bytes(draw.randrange(256) for _ in range(8))
            if not data:
                data = bytearray(b"x")
        run.input = bytes(data)
        try:
            clip = read_clip(bytes(data))
        except CosyError:
            return "refused"
        assert clip.samples.ndim == 1 and clip.samples.dtype == np.float32, "not a mono float clip"
        assert np.isfinite(clip.samples).all() and np.abs(clip.samples).max() <= 1.0, "values outside the range"
        describe(clip)
        return "read"

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=("text", "audio"))
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow-s", type=float, default=1.0)
    options = parser.parse_args()
    counts: dict[str, int] = {}
    found: dict[str, int] = {}
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        run = {"text": text_target, "audio": audio_target}[options.target](Path(folder))
        end, case = time.monotonic() + options.seconds, 0
        cpu = time.process_time()
        while time.monotonic() < end:
            draw, began = random.Random(f"{options.seed}/{case}"), time.process_time()
            try:
                result = run(draw)
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                key = f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}"
                if key not in found:
                    print(f"case {case}: {key}: {error}\n  {run.input[:300]!r}", flush=True)
                found[key] = found.get(key, 0) + 1
                result = "broke"
            took = time.process_time() - began
            if took > options.slow_s and took > slowest:
                print(f"case {case}: {took:.2f} s for {run.input[:120]!r}... of {len(run.input)}", flush=True)
            slowest = max(slowest, took)
            counts[result] = counts.get(result, 0) + 1
            case += 1
    summary = {"target": options.target, "seed": options.seed, "cases": case, **counts, "slowest_s": round(slowest, 3)}
    print(json.dumps({**summary, "cpu_s": round(time.process_time() - cpu), "found": found}))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
