"""What can be said of a clip before anything is generated from it: numbers, and verdicts in words."""

from __future__ import annotations

import threading
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from cosy_engine.audio.clicks import clicks
from cosy_engine.audio.vad import FRAME_S, speech_spans
from cosy_engine.types import Clip

# code -> words. The page words the codes per language; English stands in.
WORDS = {
    "good": "good reference",
    "short": "short: 3 to 10 s give a better likeness",
    "long": "long: its best 10 s are used, or cut it yourself",
    "no_speech": "no speech was found: choose a clip in which the voice speaks",
    "little_speech": "mostly pauses: choose a clip with more speech",
    "quiet": "quiet: record closer to the microphone",
    "clipped": "distorted by too high a level: record more softly",
    "noisy": "noisy: the noise will be heard in the output too",
    "clicks": "clicks or crackles: record it again, or choose a part without them",
    "low_rate": "recorded below 16 kHz: the output will sound dull",
    "narrow_band": "nothing above 4 kHz, as on a telephone: the output will sound dull",
    "ends_in_speech": "breaks off while the voice speaks: the last word may leak into the output",
}
# Codes that make the output worse; the rest are hints.
WARNINGS = frozenset(("clipped", "noisy", "no_speech", "low_rate", "little_speech", "quiet", "clicks"))
HEARD_HZ = 50  # no voice is below
CLICKS_PER_S = 1.0  # 150 clean clips of speech have at most 0.3; two may be a hard start and end
NARROW_SHARE = 5e-4  # of the energy above 4.3 kHz: full-band speech has 5e-3 or more, a telephone at most 1.5e-4

# Syllables in a second of speech. The clips of assets/voices and of the tests have 4.6 to 5.4, so half of their words give
# at most 2.7, and twice as many at least 9.1: the limits lie between. Readers of other languages stay inside too: a Spanish
# or Japanese one comes to 7 or 8, Mandarin for learners to 3.
NATURAL = 2.8, 8.5
# Where a second is not one of speech alone, or a syllable more or less decides: nobody speaks so slowly or so fast.
GROSS = 1.2, 9.5
ENOUGH_S = 2.0  # of speech, for the narrow limits
KEPT = 64  # reports that are remembered
_kept: OrderedDict[tuple, ClipReport] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True)
class ClipReport:
    """level_dbfs: RMS of the speech. noise_dbfs: RMS of the quietest parts; neither counts an offset, or one that drifts,
    for nobody hears it. clipping_share, speech_share: 0 to 1.
    verdicts: codes of WORDS, worst first; ("good",) when nothing is wrong."""

    seconds: float
    rate_hz: int
    level_dbfs: float
    peak_dbfs: float
    noise_dbfs: float
    clipping_share: float
    speech_share: float
    speech_s: float
    verdicts: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(WORDS[code] for code in self.verdicts)


def describe(clip: Clip) -> ClipReport:
    """Measure a clip; takes about 10 ms a second, and nothing for one of the last KEPT contents."""
    key = clip.digest, clip.rate_hz, len(clip.samples)
    with _lock:
        if key in _kept:
            _kept.move_to_end(key)
            return _kept[key]
    report = _measured(clip)
    with _lock:
        _kept[key] = report
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    return report


def clip_notes(report: ClipReport) -> list[str]:
    """The warnings for who sees no card. Reading the clip has told of a low rate already; how short it is matters too."""
    notes: list[str] = []
    for code in report.verdicts:
        if code == "short" or code in WARNINGS - {"low_rate"}:
            notes.append(f"reference clip: {WORDS[code]}")
    return notes


def _measured(clip: Clip) -> ClipReport:
    spans = speech_spans(clip)
    speech_s = sum(end - start for start, end in spans)
    samples = clip.samples
    frame = max(1, int(FRAME_S * clip.rate_hz))
    frames = np.pad(samples, (0, -len(samples) % frame)).reshape(-1, frame)
    heard = frames - frames.mean(axis=1, keepdims=True, dtype=np.float64)
    ramp = np.linspace(-1, 1, frame)
    heard -= np.outer(heard @ ramp / max(ramp @ ramp, 1e-9), ramp)
    levels = np.sqrt(np.mean(np.square(heard), axis=1))
    flat_heard = heard.reshape(-1)
    voiced = np.concatenate(
        [flat_heard[int(a * clip.rate_hz) : int(b * clip.rate_hz)] for a, b in spans] or [flat_heard]
    )
    peak = float(np.abs(samples).max())
    flat = np.abs(samples) >= max(0.985, 0.999 * peak)
    runs = flat[1:] & flat[:-1] & (np.abs(np.diff(samples)) < 1e-4)  # a clipped wave stays at the rail
    clipping = float(runs.mean()) if len(runs) and peak > 0.5 else 0.0
    numbers = dict(
        seconds=clip.seconds,
        rate_hz=clip.rate_hz,
        level_dbfs=_db(float(np.sqrt(np.mean(np.square(voiced))))),
        peak_dbfs=_db(peak),
        noise_dbfs=_db(float(np.percentile(levels, 5))),
        clipping_share=clipping,
        speech_share=min(1.0, speech_s / clip.seconds),
        speech_s=speech_s,
    )
    ends_in_speech = bool(spans) and clip.seconds - spans[-1][1] < 2 * FRAME_S
    crackles = len(clicks(samples[: 20 * clip.rate_hz], clip.rate_hz)) > max(2, CLICKS_PER_S * min(clip.seconds, 20))
    checks = {
        "no_speech": not spans,
        "clipped": clipping > 0.002,
        "clicks": crackles,
        "noisy": bool(spans) and not crackles and numbers["level_dbfs"] - numbers["noise_dbfs"] < 15,
        "quiet": numbers["level_dbfs"] < -40,
        "low_rate": clip.rate_hz < 16000,
        "narrow_band": clip.rate_hz >= 16000 and _share_above(samples, clip.rate_hz, 4300) < NARROW_SHARE,
        "short": clip.seconds < 3,
        "long": clip.seconds > 10,
        "little_speech": bool(spans) and numbers["speech_share"] < 0.4,
        "ends_in_speech": ends_in_speech,
    }
    return ClipReport(**numbers, verdicts=tuple(code for code, found in checks.items() if found) or ("good",))


def transcript_note(transcript: str, speech_s: float, *, pauses: bool = False) -> str | None:
    """A warning when the transcript can hardly be what the clip says: it is twice as long, or half as long.

    A transcript left over from another clip makes the model repeat or mix. Syllables are counted as ideographs, kana and
    Hangul, and a third of the other letters. pauses: speech_s counts them too, so slow is not suspicious.
    """
    syllables = sum(_syllables(c) for c in transcript)
    if speech_s <= 0 or syllables == 0:
        return None
    rate = syllables / speech_s
    slowest, fastest = NATURAL if speech_s >= ENOUGH_S else GROSS
    if (GROSS[0] if pauses else slowest) <= rate <= fastest:
        return None
    return (
        f"the transcript does not seem to belong to this clip ({rate:.1f} syllables in a second of speech): "
        "check that it holds exactly the words that are spoken"
    )


def _syllables(c: str) -> float:
    if not unicodedata.category(c).startswith("L"):
        return 1.5 if c.isdigit() else 0.0
    return 1.0 if unicodedata.east_asian_width(c) in "WF" else 1 / 3


def _share_above(samples: np.ndarray, rate_hz: int, cut_hz: int) -> float:
    """Share of the energy that can be heard, above cut_hz, over at most 20 s."""
    power = np.abs(np.fft.rfft(samples[: 20 * rate_hz])) ** 2
    hz = np.fft.rfftfreq(min(len(samples), 20 * rate_hz), 1 / rate_hz)
    return float(power[hz > cut_hz].sum() / max(power[hz > HEARD_HZ].sum(), 1e-20))


def _db(level: float) -> float:
    return 20 * float(np.log10(max(level, 1e-6)))
