"""Is it speech of this text? Cheap signs, one retry as long as nothing was heard, and what the user is told."""

import functools
import itertools
import time
from dataclasses import replace
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cosy_engine.errors import GenerationFailed
from cosy_engine.scheduling.finish import Finish, Heard
from cosy_engine.scheduling.guard import EMPTY, LOOP, NOISE, SILENT, TOO_LONG, TOO_SHORT, Guard
from cosy_engine.scheduling.session import Session
from cosy_engine.scheduling.worker import Worker
from tests import fakes

SPEECH = [10 + (7 * i * i + 3 * i) % 87 for i in range(400)]  # no period, and loud in the fake vocoder
QUIET = np.random.default_rng(1).integers(0, 5, 150).tolist()  # below the silence threshold there
ENDLESS = [10 + (13 * i * i + i) % 79 for i in range(3000)]
RATE = 24000


@pytest.fixture
def worker():
    worker = Worker(slots=3, queue=4)
    yield worker
    worker.close()


def run(worker, job, stages, **options):
    session = Session(job, stages, itertools.count().__next__, **options)
    worker.submit(session)
    chunks = [chunk.samples for chunk in session.audio()]
    return session.cost, np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


class HissingVocoder(fakes.FakeVocoder):
    """White noise for tokens whose mean is below `border`, else a tone."""

    def whole(self, mel, *, seed=0):
        samples = super().whole(mel)
        noise = torch.from_numpy(np.random.default_rng(0).standard_normal(len(samples)).astype(np.float32))
        return 0.2 * noise if len(samples) and samples.mean() < 0.04 else samples


def test_too_short_for_its_text_is_spoken_again(worker):
    """C06: 0.16 s of audio for a sentence."""
    cost, audio = run(worker, fakes.job("a" * 30), fakes.stages(SPEECH[:4], SPEECH[:150]))
    assert cost.retries == 1 and "too short" in cost.notes[0] and "another draw" in cost.notes[0]
    assert len(audio) == 150 * 960
    cost, audio = run(worker, fakes.job("a" * 30), fakes.stages(SPEECH[:4]))
    assert cost.retries == 1 and "listen" in cost.notes[1] and len(audio) == 4 * 960


def test_a_short_stream_of_which_nothing_was_heard_is_spoken_again_too(worker):
    cost, audio = run(worker, fakes.job("a" * 30, stream=True), fakes.stages(SPEECH[:4], SPEECH[:150]))
    assert cost.retries == 1 and len(audio) == 150 * 960


def test_a_stream_that_was_heard_is_never_taken_back(worker):
    stages = fakes.stages(SPEECH[:40], SPEECH[:150])
    cost, audio = run(worker, fakes.job("a" * 50, stream=True), stages)
    assert len(stages.pool.plans) == 1 and cost.retries == 0
    assert "too short" in cost.notes[0] and "listen" in cost.notes[0] and len(audio) == 40 * 960


@pytest.mark.parametrize("stream", [False, True])
def test_silent_audio_is_spoken_again(worker, stream):
    """E04, C07: room tone for a sentence. A stream gives no silence out before speech, so it can still try again."""
    cost, audio = run(worker, fakes.job("a" * 50, stream=stream), fakes.stages(QUIET, SPEECH[:150]))
    assert cost.retries == 1 and "silent" in cost.notes[0] and len(audio) == 150 * 960
    with pytest.raises(GenerationFailed, match=r"segment 1.*silent, twice"):
        run(worker, fakes.job("a" * 50, stream=stream), fakes.stages(QUIET))


class FakeBistream:
    """Speaks its script when the text ends."""

    def __init__(self, script, *arguments, **options):
        self.script = script

    def push(self, ids):
        return iter(())

    def finish(self, max_tokens):
        yield from ([token] for token in self.script)


@pytest.mark.parametrize("stream", [False, True])
def test_silence_without_end_is_no_success(worker, stream):
    with pytest.raises(GenerationFailed, match="silent, twice"):
        run(worker, fakes.job("a", stream=stream), fakes.stages(QUIET[:20]))


def in_pieces(worker, count: int, script: list[int], *again: list[int]):
    """A text of so many ids that comes in one piece: what its driver speaks, then what is spoken as any text."""
    state = SimpleNamespace(uniforms=torch.zeros(1, 128, 2))
    stages = fakes.stages(*again)
    stages.lm.start = lambda *sizes: state
    stages = replace(stages, bistream=functools.partial(FakeBistream, script))
    session = Session(fakes.job("", stream=True, bistream=True), stages, itertools.count().__next__)
    worker.submit(session)
    session.push_text(list(range(count)))
    session.push_text(None)
    chunks = [chunk.samples for chunk in session.audio()]
    return session.cost, np.concatenate(chunks)


@pytest.mark.parametrize(
    ("script", "why"), [([], "no speech"), (QUIET, "silent"), (SPEECH[:8], "too short"), (SPEECH[:25], None)]
)
def test_a_text_in_pieces_of_which_nothing_was_heard_is_spoken_again_as_any_text(worker, script, why):
    cost, audio = in_pieces(worker, 10, script, SPEECH[:50])
    assert (
        cost.retries == bool(why)
        and len(audio) == (50 if why else 25) * 960
        and cost.segments[0]["end_s"] == len(audio) / RATE
    )
    assert not why or (why in cost.notes[0] and "another draw" in cost.notes[0])


def test_a_text_in_pieces_that_is_never_heard_is_no_success(worker):
    with pytest.raises(GenerationFailed, match="silent, twice"):
        in_pieces(worker, 1, QUIET[:20], QUIET[:20])


def test_silence_is_an_error_also_while_a_text_still_comes(worker):
    class Humming(FakeBistream):
        def push(self, ids):
            yield from ([2] for _ in range(100))

    stages = fakes.stages([])
    stages.lm.start = lambda *sizes: SimpleNamespace(uniforms=torch.zeros(1, 128, 2))
    session = Session(
        fakes.job("", stream=True, bistream=True),
        replace(stages, bistream=functools.partial(Humming, [])),
        itertools.count().__next__,
    )
    worker.submit(session)
    session.push_text([1, 2, 3, 4, 5])
    with pytest.raises(GenerationFailed, match="silent: change"):
        list(session.audio())


def test_a_text_in_pieces_that_fails_at_its_source_ends_without_a_step_more(worker, caplog):
    """The thread that gives the text fails the request, at any moment, and the worker puts it away."""
    for _ in range(50):
        session = Session(fakes.job("", stream=True, bistream=True), fakes.stages([]), itertools.count().__next__)
        session.stages.lm.start = lambda *sizes: SimpleNamespace(uniforms=torch.zeros(1, 128, 2))
        worker.submit(session)
        session.fail(GenerationFailed("the text is empty"))
        with pytest.raises(GenerationFailed, match="the text is empty"):
            list(session.audio())
    until = time.monotonic() + 5
    while worker.load() != (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    assert worker.load() == (0, 0) and not caplog.records


def test_a_text_in_pieces_that_does_not_end_is_cut_and_said(worker):
    cost, audio = in_pieces(worker, 5, ENDLESS)
    assert cost.retries == 0 and "the end was cut" in cost.notes[0] and len(audio) <= 960 * (50 + 15 * 5 + 2)


def test_noise_is_spoken_again_and_said(worker):
    """J03: hiss in place of speech."""
    low, high = (np.random.default_rng(2).integers(a, a + 25, 150).tolist() for a in (10, 60))
    stages = replace(fakes.stages(low, high), vocoder=HissingVocoder())
    cost, audio = run(worker, fakes.job("a" * 50), stages)
    assert cost.retries == 1 and "noise" in cost.notes[0] and np.abs(audio).max() < 0.1
    cost, audio = run(worker, fakes.job("a" * 50), replace(fakes.stages(low), vocoder=HissingVocoder()))
    assert "noise; listen" in cost.notes[1]
    cost, _ = run(
        worker,
        fakes.job("a" * 50),
        replace(fakes.stages(low), vocoder=HissingVocoder()),
        guard=Guard(noise_crossings=1.0),
    )  # random weights
    assert not cost.notes


def test_a_reading_ends_at_three_times_its_usual_length(worker):
    """C07, C04: 20 tokens for an id is what releases allow, 4 times what reading takes."""
    cost, audio = run(worker, fakes.job("a" * 40), fakes.stages(ENDLESS, SPEECH[:200]))
    assert cost.retries == 1 and "did not come to an end" in cost.notes[0] and len(audio) == 200 * 960
    cost, audio = run(worker, fakes.job("a" * 40), fakes.stages(ENDLESS))
    assert len(audio) <= 960 * (50 + 15 * 40 + 2) and "the end was cut" in cost.notes[-1]


@pytest.mark.parametrize("stream", [False, True])
def test_200_short_texts_never_run_away(worker, stream):
    """A19, C07: one draw in twenty murmurs on; nobody hears more than three times the median."""
    draw = np.random.default_rng(3)
    seconds = []
    for i in range(200):
        text = "a" * int(draw.integers(1, 4))
        good = SPEECH[: max(8, 8 * len(text) + int(draw.integers(-2, 3)))]
        cost, audio = run(worker, fakes.job(text, stream=stream), fakes.stages(ENDLESS if i % 20 == 0 else good, good))
        seconds.append(len(audio) / RATE / len(text))
        if i % 20 == 0:
            assert any("did not come to an end" in note for note in cost.notes)
    assert max(seconds) <= 3 * median(seconds)


def test_good_speech_of_any_pace_has_no_verdict():
    guard = Guard()
    for ratio in (2.5, 5, 10, 15):
        tokens = (SPEECH * 5)[: int(ratio * 30)]
        tokens = [t + 1000 * (i // 400) for i, t in enumerate(tokens)]  # no loop
        assert guard.verdict(tokens, True, 30) is None and not guard.endless(len(tokens), 30)


@pytest.mark.parametrize(
    ("tokens", "ended", "verdict"),
    [([], True, EMPTY), (SPEECH[:300], False, TOO_LONG), (SPEECH[:20], True, TOO_SHORT), (list(range(12)) * 10, True, LOOP),
     ([1, 2] * 20 + SPEECH[:20], True, TOO_SHORT), ([1, 2] * 15 + SPEECH[:30], True, None)],
)  # fmt: skip
def test_each_fault_of_tokens_has_its_verdict(tokens, ended, verdict):
    """In the last two the length is right: mostly silence, and half of it."""
    assert Guard().verdict(tokens, ended, 30, silent_ids={1, 2}) == verdict


def test_each_fault_of_sound_has_its_verdict():
    guard = Guard()

    def verdict(samples) -> str | None:
        finish = Finish(RATE)
        finish.take(samples.astype(np.float32))
        finish.end()
        return guard.sound(finish.heard, RATE)

    t = np.arange(2 * RATE) / RATE
    noise = np.random.default_rng(2).standard_normal(2 * RATE)
    syllables = 0.3 * np.sin(2 * np.pi * 170 * t) * (np.sin(2 * np.pi * 4 * t) > 0)
    hissing = np.where(np.sin(2 * np.pi * 4 * t) > 0.3, syllables, 0.05 * noise)  # an s in every syllable
    assert verdict(syllables) is None and verdict(hissing) is None
    assert verdict(0.001 * noise) == SILENT and verdict(syllables[: int(0.08 * RATE)]) == SILENT
    assert verdict(0.2 * noise) == NOISE
    assert verdict(np.clip(30 * syllables, -0.99, 0.99)) == NOISE  # a burst at full scale
    assert guard.sound(Heard(), RATE) == SILENT
