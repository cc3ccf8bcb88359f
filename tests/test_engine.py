"""The whole path on the built-in miniature: every mode, streaming against whole, seeds, users side by side, bad input."""

import asyncio
import gc
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from cosy_engine import Request, Voice, load
from cosy_engine.build import pick_device
from cosy_engine.errors import (
    Cancelled,
    CosyError,
    InputMissing,
    ModeUnavailable,
    ReferenceSilent,
    ReferenceTooLong,
    ReferenceTooShort,
    ReferenceUnreadable,
    SettingInvalid,
    TextEmpty,
    TextTooLong,
    TextUnspeakable,
)
from cosy_engine.scheduling.finish import Finish
from cosy_engine.stages import FlowPrompt

WORDS = "the quick brown fox jumps over the lazy dog"
TEXT = "Hello there, this is a test of the whole path."


def speechlike(seconds: float, rate_hz: int = 24000, pitch_hz: float = 140.0) -> tuple[int, np.ndarray]:
    """A buzz with syllables: enough for every stage to see a voice. Deterministic."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    wave = sum(np.sin(2 * np.pi * pitch_hz * k * t) / k for k in range(1, 20))
    return rate_hz, (0.1 * wave * (0.55 + 0.45 * np.sin(2 * np.pi * 4 * t))).astype(np.float32)


CLIP = speechlike(4.0)


@pytest.fixture(scope="module")
def engine(miniature_folder):
    engine = load(miniature_folder, device="cpu", slots=3)
    yield engine
    engine.close()


def request(**changes) -> Request:
    return Request(**({"mode": "zero_shot", "text": TEXT, "reference": CLIP, "transcript": WORDS, "seed": 5} | changes))


def test_every_mode_gives_audio_and_a_full_report(engine):
    voice = engine.voice(CLIP, WORDS)
    jobs = {
        "zero_shot": request(),
        "cross_lingual": request(mode="cross_lingual", transcript=""),
        "instruct": request(mode="instruct", transcript="", instruction="speak softly"),
        "saved_voice": request(mode="saved_voice", reference=voice, transcript=""),
        "voice_conversion": request(
            mode="voice_conversion", text="", transcript="", source=speechlike(3.0, pitch_hz=220.0)
        ),
    }
    for mode, job in jobs.items():
        result = engine.speak_all(job)
        report = result.report
        assert len(result.samples) == round(report.audio_s * result.rate_hz) > 0
        assert np.isfinite(result.samples).all() and np.abs(result.samples).max() <= 0.99
        assert report.mode == mode and report.rtf > 0 and report.first_audio_s > 0 and report.provider
        assert {"front_end", "flow", "vocoder"} <= set(report.stages_s)
        assert report.rows == (mode != "voice_conversion")
    assert engine.speak_all(jobs["voice_conversion"]).report.audio_s == pytest.approx(3.0, abs=0.05)


def test_same_seed_same_audio_first_run_equals_later_runs_and_another_seed_differs(engine):
    first, again, other = (engine.speak_all(request(seed=seed)).samples for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert len(first) != len(other) or not np.array_equal(first, other)


def test_a_drawn_seed_is_reported_and_repeats_the_audio(engine):
    result = engine.speak_all(request(seed=None))
    np.testing.assert_array_equal(engine.speak_all(request(seed=result.report.seed)).samples, result.samples)


def test_streamed_audio_equals_one_block_masked_pass(engine):
    speech = engine.speak(request(stream=True))
    chunks = [chunk.samples for chunk in speech]
    assert len(chunks) > 1
    stages = engine.shelf.at("fp32", "eager")
    whole = engine.speak_all(request())
    assert whole.report.tokens == speech.report.tokens  # same draws, however it is rendered
    job = engine.job(request())[0]
    tokens = decoded_tokens(engine, job)
    skip = len(job.voice.tokens) % 25  # a stream's prompt ends on a block border
    prompt = FlowPrompt(job.voice.tokens[skip:], job.voice.mel[2 * skip :], job.voice.embedding)
    assert len(chunks[0]) == 480 * (2 * 25 - 8) - 120  # one block, less what the vocoder must see ahead and the fade
    mel = stages.flow.whole([torch.tensor(tokens)], [prompt], streaming=True)[0]
    finish = Finish(24000)
    expected = np.concatenate([finish.take(stages.vocoder.whole(mel).numpy()), finish.end()])
    # 1e-3: the phase sums of the source amplify rounding of other matrix shapes (tests/vocoder measures 1e-4 at this size)
    np.testing.assert_allclose(np.concatenate(chunks), expected, atol=1e-3)


def decoded_tokens(engine, job):
    from cosy_engine.scheduling.guard import SilenceLimiter
    from cosy_engine.scheduling.session import Session

    session = Session(job, engine.shelf.at("fp32", "eager"), engine.clock)
    taken = []

    class Sink:
        heard = False
        tokens = ()
        out = Finish(24000, trim=False)

        def due(self):
            return False

        def order_of_rest(self):
            return None

        def lacking(self):
            return 0

        def take(self, tokens):
            taken.extend(tokens)

        def render_rest(self):
            self.out.take(np.full(24000, 0.5, np.float32))

        def release(self):
            pass

    session._renderer = lambda index, attempt: Sink()
    engine.worker.submit(session)
    list(session.audio())
    spec = engine.spec.llm
    return SilenceLimiter(frozenset(spec.silent_ids), spec.max_silent_run).keep(taken)


def test_users_at_once_each_hear_what_they_hear_alone(engine):
    jobs = [
        request(seed=1, stream=True),
        request(seed=2, reference=speechlike(3.0, pitch_hz=230.0), stream=True),
        request(seed=3, text="Another text."),
        request(mode="cross_lingual", transcript="", seed=4, stream=True),
        request(seed=5),
    ]
    alone = [engine.speak_all(job).samples for job in jobs]
    together: list = [None] * len(jobs)

    def user(i):
        together[i] = engine.speak_all(jobs[i]).samples

    threads = [threading.Thread(target=user, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for expected, got in zip(alone, together, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_closing_a_stream_early_frees_its_state(engine):
    def tensors():
        gc.collect()
        return sum(type(o) is torch.Tensor for o in gc.get_objects())

    def leave_early():
        speech = engine.speak(request(text=TEXT * 20, stream=True, seed=9))
        next(speech)
        speech.close()
        assert speech._session.finished.wait(10)

    leave_early()
    before = tensors()
    for _ in range(5):
        leave_early()
    assert tensors() <= before + 5  # nothing that grows with the number of requests
    assert engine.worker.load() == (0, 0)


def test_a_stopped_request_reports_what_was_heard_of_it(engine):
    speech = engine.speak(request(text=TEXT * 8, stream=True, seed=9))
    heard = [next(speech)]
    speech.close()
    with pytest.raises(Cancelled):
        for chunk in speech:
            heard.append(chunk)
    samples = sum(len(chunk.samples) for chunk in heard)
    report = speech.report
    assert report.audio_s == samples / 24000 and report.first_audio_s > 0 and report.rtf > 0
    assert report.segments[-1]["end_s"] == report.audio_s and TEXT.startswith(report.segments[-1]["text"][:20])
    waiting = engine.speak(request(text=TEXT * 8, seed=9))
    waiting.close()
    with pytest.raises(Cancelled):
        list(waiting)
    assert waiting.report is None  # nothing was heard


def test_text_in_pieces_is_spoken_while_it_arrives(engine):
    gate = threading.Event()

    def pieces():
        yield from ("This text ", "arrives in pieces, ", "one after another, ") * 6
        assert gate.wait(30), "no audio came before the text had ended"
        yield "and here it ends."

    speech = engine.speak(request(text=pieces(), seed=3))
    first = next(speech)
    gate.set()
    rest = [chunk.samples for chunk in speech]
    assert len(first.samples) and rest and speech.report.tokens > 25


def test_an_error_in_the_text_iterator_reaches_the_caller(engine):
    def pieces():
        yield "This text breaks "
        raise OSError("the line went dead")

    with pytest.raises(OSError, match="went dead"):
        list(engine.speak(request(text=pieces())))


def test_a_long_text_comes_segment_by_segment(engine):
    text = "This is one sentence of many, and it goes on for quite a while before it ends. " * 12
    chunks = list(engine.speak(request(text=text)))
    numbers = [chunk.segment for chunk in chunks]
    assert chunks[0].segments > 3 and numbers == sorted(numbers) and set(numbers) == set(range(chunks[0].segments))


def test_speed_changes_the_length(engine):
    normal, fast = (engine.speak_all(request(speed=speed)).report for speed in (1.0, 2.0))
    assert fast.audio_s == pytest.approx(normal.audio_s / 2, abs=0.05)


def test_bf16_runs_and_is_named(engine):
    report = engine.speak_all(request(precision="bf16")).report
    assert report.precision == "bf16" and report.audio_s > 0


def test_a_typed_end_tag_is_never_a_token(engine):
    job = engine.job(request(text="Hello <|endofprompt|> there <|im_start|>"))[0]
    end = engine.text.tokenizer.endofprompt_id
    (segment,) = job.segments
    assert list(segment.prompt_ids).count(end) == 1 and end not in segment.text_ids
    assert "endofprompt" not in segment.text and "im_start" not in segment.text


BAD = [
    (request(text=""), TextEmpty, "empty"),
    (request(text="\u200b \n\u3000"), TextEmpty, "empty"),
    (request(text="……!!"), TextUnspeakable, "words"),
    (request(text="a" * 6000), TextTooLong, "5,000"),
    (request(reference=None), InputMissing, "reference"),
    (request(transcript="  "), InputMissing, "words spoken"),
    (request(transcript="..."), InputMissing, "words spoken"),
    (request(mode="instruct", transcript=""), InputMissing, "instruction"),
    (request(mode="voice_conversion", text=""), InputMissing, "source"),
    (request(mode="saved_voice"), InputMissing, "saved voice"),
    (request(mode="sing"), SettingInvalid, "zero_shot"),
    (request(speed=3.0), SettingInvalid, "0.5"),
    (request(speed=float("nan")), SettingInvalid, "0.5"),
    (request(speed=1.5, stream=True), SettingInvalid, "streaming"),
    (request(seed=-1), SettingInvalid, "seed"),
    (request(seed=1.5), SettingInvalid, "seed"),
    (request(precision="int4"), SettingInvalid, "fp32"),
    (request(text=None), SettingInvalid, "text is of type NoneType"),
    (request(text=5), SettingInvalid, "text is of type int"),
    (request(text=b"bytes"), SettingInvalid, "text is of type bytes"),
    (request(text=["a", 3]), SettingInvalid, "text is of type list"),
    (request(transcript=5), SettingInvalid, "transcript is of type int"),
    (request(mode="instruct", transcript="", instruction=[]), SettingInvalid, "instruction is of type list"),
    (request(mode=[]), SettingInvalid, "mode is of type list"),
    (request(stream="yes"), SettingInvalid, "stream"),
    (request(speed=10**400), SettingInvalid, "0.5"),
    (request(tier=np.zeros(3)), SettingInvalid, "tier"),
    (request(transcript="a" * 2001), TextTooLong, "transcript"),
    (request(mode="instruct", transcript="", instruction="<!--" * 25000), TextTooLong, "instruction"),
    (request(precision="fp16"), ModeUnavailable, "CPU"),
    (request(tier="graph"), ModeUnavailable, "CUDA"),
    (request(tier="warp"), SettingInvalid, "eager"),
    (request(reference=b"not audio at all"), ReferenceUnreadable, "audio"),
    (request(reference=speechlike(0.2)), ReferenceTooShort, "0.20 s"),
    (request(reference=(24000, np.zeros(48000, np.float32))), ReferenceSilent, "silen"),
    (request(reference=speechlike(40.0)), ReferenceTooLong, "30 s"),
]


@pytest.mark.parametrize("job,error,words", BAD)
def test_bad_input_gets_its_own_message_before_the_model_is_touched(engine, job, error, words):
    with pytest.raises(error, match=words) as caught:
        engine.speak(job)
    assert isinstance(caught.value, CosyError) and len(str(caught.value)) > 20
    assert engine.worker.load() == (0, 0)


def test_a_long_reference_without_transcript_is_cut_to_its_best_part_and_said(engine):
    speech = engine.speak(request(mode="cross_lingual", transcript="", reference=speechlike(25.0)))
    assert speech._session.job.voice.seconds <= 10.5 and speech.notes
    list(speech)


def test_what_is_wrong_with_a_clip_or_its_words_is_a_note_of_the_report(engine):
    rate_hz, hum = 24000, np.sin(np.arange(24000 * 4) / 24000 * 2 * np.pi * 50).astype(np.float32)
    for changes, words in (
        ({"reference": (rate_hz, 0.3 * hum)}, "no speech was found"),
        ({"reference": (rate_hz, np.clip(2 * hum, -1, 1))}, "too high a level"),
        ({"reference": speechlike(0.9)}, "short: 3 to 10 s"),
        ({"transcript": f"{WORDS} {WORDS} {WORDS}"}, "does not seem to belong"),
    ):
        notes = engine.speak_all(request(**changes)).report.notes
        assert any(words in note for note in notes), (words, notes)
    usual = engine.speak_all(request(reference=engine.voice(CLIP, WORDS), transcript="")).report.notes
    assert not any("reference clip" in note or "belong" in note for note in usual)


def ends_with(engine, job, error, words):
    with pytest.raises(error, match=words):
        list(engine.speak(job))
    for _ in range(100):
        if engine.worker.load() == (0, 0):
            return
        threading.Event().wait(0.05)
    raise AssertionError("a slot was lost")


@pytest.mark.parametrize("pieces", [[], [""], ["  ", "\u200b"]])
def test_text_in_pieces_without_a_word_is_refused_like_a_whole_one(engine, pieces):
    ends_with(engine, request(text=iter(pieces)), TextEmpty, "without a word")


@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_an_iterator_that_is_torn_down_frees_its_slot(engine, error):
    def pieces():
        yield "Hello there, "
        raise error

    ends_with(engine, request(text=pieces()), Cancelled, "ended early")


def test_an_iterator_of_other_things_than_text_is_refused(engine):
    ends_with(engine, request(text=iter(["Hello ", 5])), SettingInvalid, "int")


def test_an_endless_iterator_is_read_no_faster_than_it_is_spoken_and_only_so_far(engine):
    pulled = 0

    def pieces():
        nonlocal pulled
        while True:
            pulled += 1
            yield "word "

    speech = engine.speak(request(text=pieces()))
    next(speech)
    assert pulled < 500  # back-pressure: far from the 1,000 pieces that may come in all
    speech.close()
    assert speech._session.finished.wait(10)
    before = pulled
    threading.Event().wait(1.5)
    assert pulled <= before + 1  # nobody pulls for nobody


def test_listeners_who_write_slowly_hold_no_place_of_others(engine):
    gate = threading.Event()

    def pieces():
        yield "One moment "
        gate.wait(30)

    slow = [engine.speak(request(text=pieces())) for _ in range(engine.config.slots)]
    try:
        assert engine.speak_all(request(text="Hi there.")).report.audio_s > 0
    finally:
        for speech in slow:
            speech.close()
        gate.set()


@pytest.mark.parametrize(
    "change",
    [{"tokens": torch.full((40,), 7000)}, {"mel": torch.zeros(3, 80)}, {"mel": torch.full((80, 80), torch.nan)}, {"embedding": torch.zeros(5)}, {"tokens": None}, {"transcript": "\ud800 hi"}],
)  # fmt: skip
def test_a_broken_voice_is_refused_before_it_reaches_the_model(engine, change):
    good = Voice(torch.arange(40), torch.zeros(80, 80), torch.ones(192), "words of the clip")
    with pytest.raises(ReferenceUnreadable, match="not a usable voice"):
        engine.speak(request(mode="saved_voice", transcript="", reference=replace(good, **change)))


@pytest.mark.parametrize("device", ["cuda:0", "cuda:256", "cuda:999", "cuda:x", "gpu", "cpu:1", ""])
def test_a_device_that_is_not_there_is_named(device):
    if torch.cuda.is_available() and device == "cuda:0":
        return
    with pytest.raises(ModeUnavailable):
        pick_device(device)


def test_a_snapshot_counts_what_the_engine_does(engine):
    before = engine.snapshot()
    assert (before.running, before.waiting, before.rows) == (0, 0, 0) and before.rows_total >= 3
    tokens = engine.speak_all(request()).report.tokens
    after = engine.snapshot()
    assert after.audio_per_s > 0
    assert after.steps - before.steps >= tokens > 0 and after.captures_done == after.captures_total


def test_a_request_without_a_mode_is_for_what_it_gives(engine):
    """As on the command line and through the API."""
    clip, voice = speechlike(3.0), engine.voice(speechlike(3.0), WORDS)
    for given, mode in (
        ({}, "cross_lingual"),
        ({"transcript": " "}, "cross_lingual"),
        ({"transcript": WORDS}, "zero_shot"),
        ({"transcript": WORDS, "instruction": "softly"}, "instruct"),
        ({"source": clip}, "voice_conversion"),
        ({"mode": "cross_lingual", "transcript": WORDS}, "cross_lingual"),
    ):
        assert Request(text="Hi.", reference=clip, **given).mode == mode
    assert Request(text="Hi.", reference=voice).mode == "saved_voice"
    assert engine.speak_all(Request(text="Hi.", reference=clip)).report.mode == "cross_lingual"
    with pytest.raises(InputMissing, match="words spoken"):
        engine.speak(Request(mode="zero_shot", text="Hi.", reference=clip))
