"""The demo voice's recipe: its parts equal what they stand for, and every script trains, resumes and writes its gates."""

import json
import sys

import numpy as np
import pytest
import torch

from cosy_engine.audio.features import flow_mel, kaldi_fbank, whisper_log_mel
from cosy_engine.audio.speaker_encoder import SpeakerEncoder
from cosy_engine.audio.speech_tokenizer import SpeechTokenizer
from cosy_engine.model_files.layout import find_release
from cosy_engine.settings.model_spec import HiftSpec, MelSpec
from cosy_engine.text.tokenizer import TextTokenizer
from cosy_engine.vocoder import Hift
from tools.demo_model import (
    assemble,
    augment,
    codes,
    data,
    flow_mels,
    front_end,
    schedule,
    sequences,
    sizes,
    speak_split,
    text_vocabulary,
    train_flow,
    train_lm,
    train_speaker,
    train_tokenizer,
    train_vocoder,
)
from tools.demo_model.corpus import guests as guest_speech
from tools.demo_model.corpus import sentences_file, speakers
from tools.demo_model.fast_vocoder import slow_down, speed_up


@pytest.fixture(scope="module")
def coded(corpus, tmp_path_factory):
    """codes.npz of the small corpus, by the trained front end."""
    networks = codes.front_end_networks(
        codes.CHECKPOINTS / "tokenizer.safetensors", codes.CHECKPOINTS / "speaker.safetensors", "cpu"
    )
    path = tmp_path_factory.mktemp("codes") / "codes.npz"
    codes.save(path, codes.encode(data.Corpus([corpus], "cpu"), *networks))
    return path


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    text_vocabulary.learn((row["text"] for row in sentences_file.read()[:300]), folder, entries=320)
    return folder


def run(monkeypatch, module, *arguments):
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    torch.manual_seed(0)
    module.main()


# ---- data


def test_no_training_sentence_and_no_training_blend_is_held_out():
    rows = sentences_file.read()
    held = sum(sentences_file.is_held_out(row["text"]) for row in rows)
    assert 0.01 < held / len(rows) < 0.02
    trained = {tuple(sorted(mix)) for _, mix, _ in speakers.make(1500)}
    assert not trained & {tuple(sorted(mix)) for _, mix, _ in speakers.unseen(60, 1500)}


def test_labels_follow_durations_and_skip_stress_marks(corpus):
    c = data.Corpus([corpus], "cpu")
    item = c.items[0]
    classes, sequence = data.frame_classes(item)
    assert len(classes) == item["length"] // data.GRID_SAMPLES
    assert sequence == [data.CLASS[s] for s in item["phonemes"] if data.CLASS.get(s, 0) > 0]
    assert set(classes.tolist()) <= {-1, 0, *sequence}


def test_a_guest_reports_its_own_phoneme_times():
    segments = guest_speech.segments("pau:0.2 er:0.4 z:0.5 pau:0.6 ")
    assert segments == [(" ", 0.2), ("ə", 0.3), ("ɹ", 0.4), ("z", 0.5), (" ", 0.6)]


def test_augmentation_keeps_time_and_range():
    torch.manual_seed(0)
    wave = 0.2 * torch.randn(6, 16000)
    out = augment.channel(wave, share=1.0)
    assert out.shape == wave.shape
    assert out.abs().max() <= 1.0
    assert not torch.equal(out, wave)
    mel = whisper_log_mel(wave)
    assert augment.spectrum(mel).shape == mel.shape


# ---- parts equal what they stand for


def test_the_loss_hears_the_mel_that_the_flow_makes():
    wave = 0.3 * torch.randn(2, 24000)
    far = (train_vocoder.LogMel()(wave) - flow_mel(wave, MelSpec()).transpose(1, 2)).abs().max()
    assert far < 1e-4  # fp32 sums in another order


@torch.no_grad()
def test_the_fast_vocoder_is_the_engines():
    net = Hift(HiftSpec(causal=False, base_channels=32, f0_channels=16), weight_norm=True)
    torch.manual_seed(0)
    mel, source = torch.randn(1, 80, 12), 0.1 * torch.randn(1, 12 * 480)
    plain = net.decode(mel, source)
    fast = speed_up(net, torch.float32, fused_snake=False).decode(mel, source)
    assert (fast - plain).abs().max() < 1e-6
    assert (slow_down(net).decode(mel, source) - plain).abs().max() == 0


@torch.no_grad()
def test_the_exported_front_end_gives_the_checkpoints_codes_and_vectors():
    tokenizer, speaker = codes.front_end_networks(
        codes.CHECKPOINTS / "tokenizer.safetensors", codes.CHECKPOINTS / "speaker.safetensors", "cpu"
    )
    wave = 0.1 * torch.randn(24000, generator=torch.Generator().manual_seed(1)).cumsum(0).remainder(1.0)
    feats = whisper_log_mel(wave[None])
    want = tokenizer(feats, torch.tensor([feats.shape[2]]))[0]
    got = SpeechTokenizer(codes.DEMO_VOICE / "speech_tokenizer_v3.onnx", device="cpu")(wave)
    assert (got == want).float().mean() > 0.95  # a value near a rounding border may fall either way
    vector = SpeakerEncoder(codes.DEMO_VOICE / "campplus.onnx")(wave)
    assert (vector - speaker(kaldi_fbank(wave[None]))[0]).abs().max() < 1e-4


def test_codes_and_digits_are_one_another():
    numbers = torch.arange(front_end.CODES)
    assert torch.equal(front_end.Tokenizer.codes(front_end.digits(numbers)).long(), numbers)


# ---- sequences of the language model


def test_speech_follows_text_and_ends():
    spec = sizes.lm_spec(400)
    ids, targets = sequences.whole(spec, [7], [1, 2], [10, 11])
    assert ids == [spec.sos_row, *(t + spec.head_rows for t in (7, 1, 2)), spec.task_row, 10, 11]
    assert targets == [sequences.IGNORED] * 4 + [10, 11, spec.eos_id]


def test_text_and_speech_take_turns_as_the_engine_feeds_them():
    spec = sizes.lm_spec(400)
    text, speech = list(range(7)), list(range(100, 140))
    assert sequences.can_mix(spec, text, speech)
    ids, targets = sequences.mixed(spec, [9], text, speech)
    lifted = [t + spec.head_rows for t in text]
    start = [spec.sos_row, 9 + spec.head_rows]
    assert ids == start + lifted[:5] + speech[:15] + lifted[5:] + [spec.task_row] + speech[15:]
    trained = [t for t in targets if t != sequences.IGNORED]
    assert trained == [*speech[:15], spec.fill_id, *speech[15:], spec.eos_id]
    for at, target in enumerate(targets[:-1]):  # a target that is a code is the next input
        assert target in (sequences.IGNORED, spec.fill_id) or ids[at + 1] == target


def test_dropped_merges_spell_the_same_text(vocabulary):
    (plain, loose, _), prefix = text_vocabulary.variants(["Good morning, everybody."] * 3, vocabulary)
    tokens = TextTokenizer(vocabulary, "v3")
    assert {tokens.decode(ids) for ids in plain + loose} == {"Good morning, everybody."}
    assert tokens.endofprompt_id in prefix


# ---- twenty steps of every script, and again from its weights


def test_tokenizer_trains_and_resumes(monkeypatch, corpus, guests, tmp_path):
    options = ["--train", corpus, "--guests", guests, "--dev", corpus, "--out", tmp_path, "--warp", 0.18]
    options += ["--batch-seconds", 1.5, "--guest-every", 5, "--device", "cpu"]
    run(monkeypatch, train_tokenizer, *options, "--steps", 20)
    report = json.loads((tmp_path / "tokenizer.json").read_text())
    assert report["steps"] == 20
    assert 0 <= report["phoneme_error_rate"] < 2
    run(monkeypatch, train_tokenizer, *options, "--steps", 1, "--resume", tmp_path / "tokenizer.safetensors")


def test_speaker_encoder_trains_and_resumes(monkeypatch, corpus, guests, tmp_path):
    options = ["--train", corpus, "--guests", guests, "--dev", corpus, "--out", tmp_path, "--warp", 0.18]
    options += ["--batch", 10, "--longest", 0.5, "--device", "cpu"]
    run(monkeypatch, train_speaker, *options, "--steps", 20)
    assert json.loads((tmp_path / "speaker.json").read_text())["voices"] == 4
    run(monkeypatch, train_speaker, *options, "--steps", 1, "--resume", tmp_path / "speaker.safetensors")


def test_vocoder_trains_in_both_stages_and_resumes(monkeypatch, corpus, tmp_path):
    options = ["--train", corpus, "--dev", corpus, "--out", tmp_path, "--batch", 1, "--frames", 10, "--base", 16]
    options += ["--device", "cpu", "--gate-clips", 2]
    run(monkeypatch, train_vocoder, *options, "--steps", 20, "--plain-steps", 16)
    report = json.loads((tmp_path / "vocoder.json").read_text())
    assert (report["steps"], report["plain_steps"]) == (20, 16)
    run(monkeypatch, train_vocoder, *options, "--steps", 1, "--resume", tmp_path / "vocoder.safetensors")


def test_lm_trains_speaks_and_resumes(monkeypatch, coded, vocabulary, tmp_path):
    options = ["--codes", coded, "--dev", coded, "--text", vocabulary, "--out", tmp_path, "--layers", 1, "--width", 64]
    options += ["--tokens", 256, "--workers", 0, "--gate-rows", 2, "--device", "cpu"]
    run(monkeypatch, train_lm, *options, "--steps", 20)
    assert json.loads((tmp_path / "lm.json").read_text())["steps"] == 20
    run(monkeypatch, train_lm, *options, "--steps", 1, "--resume", tmp_path / "lm.safetensors")


def test_flow_trains_makes_mel_and_resumes(monkeypatch, corpus, coded, tmp_path):
    options = ["--train", corpus, "--codes", coded, "--dev", corpus, "--dev-codes", coded, "--out", tmp_path]
    options += ["--dim", 64, "--depth", 1, "--rows", 1, "--tokens", 30, "--gate-rows", 1, "--device", "cpu"]
    run(monkeypatch, train_flow, *options, "--steps", 20)
    report = json.loads((tmp_path / "flow.json").read_text())
    assert np.isfinite(report["mel_l1"])
    run(monkeypatch, train_flow, *options, "--steps", 1, "--resume", tmp_path / "flow.safetensors")
    mels = tmp_path / "mels.npz"
    made = ["--corpus", corpus, "--codes", coded, "--flow", tmp_path / "flow.safetensors", "--out", mels]
    run(monkeypatch, flow_mels, *made, "--hours", 0.001, "--batch", 2, "--device", "cpu")
    options = ["--train", corpus, "--dev", corpus, "--out", tmp_path, "--batch", 1, "--frames", 10, "--base", 16]
    options += ["--device", "cpu", "--gate-clips", 1, "--mels", mels]
    run(monkeypatch, train_vocoder, *options, "--steps", 2, "--plain-steps", 2)


def test_the_assembled_folder_is_a_release(vocabulary, tmp_path):
    """Random LM and flow of the real sizes, the trained vocoder and front end: the loader finds all of it."""
    spec = sizes.model_spec(TextTokenizer(vocabulary, "v3").size)
    lm, flow = train_lm.SpeechLM(spec.llm), train_flow.build_flow(spec.flow)
    for name, net in {"lm": lm, "flow": flow}.items():
        schedule.save(tmp_path / f"{name}.safetensors", {name: net}, half=True)
    vocoder = codes.DEMO_VOICE / "hift.pt"
    parts = tmp_path / "lm.safetensors", tmp_path / "flow.safetensors", vocoder
    found = find_release(assemble.assemble(tmp_path / "voice", *parts, codes.DEMO_VOICE, vocabulary))
    assert (found.spec.vocoder.causal, found.spec.vocoder.base_channels) == (False, 192)
    assert found.spec.text_tokens == "v3"
    assert found.spec.llm.sampling == sizes.SAMPLING
    assert sum(p.stat().st_size for p in found.folder.rglob("*") if p.is_file()) < 64e6


def test_a_held_out_item_is_spoken_after_another_of_its_voice(tmp_path):
    rows = [{"id": str(k), "split": "dev", "speaker": voice} for k, voice in enumerate("aabbbc")]
    (tmp_path / "index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    items = speak_split.items_of(tmp_path, "dev")
    assert len(items) == 5  # the voice that speaks once has no reference
    assert all(i["speaker"] == i["reference"]["speaker"] and i["id"] != i["reference"]["id"] for i in items)
