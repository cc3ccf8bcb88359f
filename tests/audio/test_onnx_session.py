"""A network that cannot run is named; a GPU that does not work is no reason to stop."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from cosy_engine.audio.onnx_session import OnnxModel
from cosy_engine.audio.speaker_encoder import SpeakerEncoder
from cosy_engine.audio.speech_tokenizer import SpeechTokenizer
from cosy_engine.errors import ModelFilesError, ReferenceTooLong, ReferenceTooShort


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "missing"),
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9", "Git LFS pointer"),
        (b"not a network at all", "not a valid ONNX model"),
    ],
)
@pytest.mark.parametrize("kind", [SpeechTokenizer, SpeakerEncoder])
def test_a_bad_file_is_named_with_the_remedy(tmp_path, content, words, kind):
    file = tmp_path / "net.onnx"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ModelFilesError, match=rf"net\.onnx is .*{words}.*fetch"):
        kind(file)


def test_a_truncated_network_is_named(tmp_path, tiny_networks):
    file = tmp_path / "cut.onnx"
    file.write_bytes(tiny_networks[0].read_bytes()[:-500])
    with pytest.raises(ModelFilesError, match=r"cut\.onnx"):
        SpeechTokenizer(file)


def test_exchanged_networks_are_noticed(tiny_networks):
    with pytest.raises(ModelFilesError, match="a speech tokenizer takes"):
        SpeechTokenizer(tiny_networks[1])
    with pytest.raises(ModelFilesError, match="a speaker encoder takes"):
        SpeakerEncoder(tiny_networks[0])


def test_the_session_says_what_it_runs_on(tiny_networks):
    import onnxruntime

    model = OnnxModel(tiny_networks[0], device="cpu")
    assert model.provider == "CPUExecutionProvider"
    assert model.inputs == ["feats", "feats_length"]
    assert OnnxModel(tiny_networks[0], device=torch.device("cuda", 0)).provider in onnxruntime.get_available_providers()


def test_a_gpu_that_fails_falls_back_to_the_cpu_with_a_reason(tiny_networks, monkeypatch, caplog):
    import onnxruntime

    real = onnxruntime.InferenceSession

    def session(file, options, providers):
        if providers[0] != "CPUExecutionProvider":
            raise RuntimeError("CUDA driver version is insufficient")
        return real(file, options, providers=providers)

    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    with caplog.at_level(logging.INFO):
        tokenizer = SpeechTokenizer(tiny_networks[0], device="auto")
    assert tokenizer.provider == "CPUExecutionProvider"
    assert "driver version" in caplog.text
    assert len(tokenizer(torch.randn(16000) * 0.1)) == 25


def test_a_gpu_that_fails_while_running_falls_back_too(tiny_networks, caplog):
    model = OnnxModel(tiny_networks[1], device="cpu")

    class Failing:
        def get_providers(self):
            return ["CUDAExecutionProvider"]

        def run(self, *_):
            raise RuntimeError("out of memory")

    model._session = Failing()
    assert model.run(np.zeros((1, 20, 80), np.float32)).shape == (1, 192)
    assert "out of memory" in caplog.text


@pytest.mark.parametrize("samples", [640, 16000, 16001, 16640 + 159, 48000])
def test_there_are_25_tokens_a_second(tiny_networks, samples):
    tokens = SpeechTokenizer(tiny_networks[0])(torch.randn(samples, generator=torch.Generator().manual_seed(0)))
    frames = samples // 160
    assert tokens.shape == (-(-frames // 4),)
    assert tokens.dtype == torch.int64
    assert int(tokens.min()) >= 0 and int(tokens.max()) < 6561


def test_more_than_30_s_are_refused_not_cut(tiny_networks):
    tokenizer = SpeechTokenizer(tiny_networks[0])
    assert len(tokenizer(torch.randn(480000))) == 750
    with pytest.raises(ReferenceTooLong, match=r"30\.1 s, at most 30 s"):
        tokenizer(torch.randn(481600))
    with pytest.raises(ReferenceTooShort):
        tokenizer(torch.randn(100))


def test_the_speaker_vector_is_192_wide_and_raw(tiny_networks):
    vector = SpeakerEncoder(tiny_networks[1])(torch.randn(16000))
    assert vector.shape == (192,) and vector.dtype == torch.float32
    assert abs(vector.norm().item() - 1) > 1e-3
