from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
import soundfile
from onnx import TensorProto, helper, numpy_helper

from cosy_engine.audio.waveform import read_clip

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def speech():
    """Synthetic English speech of our own corpus: three clips of 4 to 8 s."""
    return [read_clip(HERE / f"speech_{i}.opus") for i in range(3)]


@pytest.fixture(scope="session")
def clean_wav(speech) -> bytes:
    """A clean reference as a studio gives it: 16 bits, mono, 24 kHz."""
    return encoded(speech[0].samples, 24000)


def encoded(samples: np.ndarray, rate_hz: int, kind: str = "WAV", subtype: str | None = "PCM_16") -> bytes:
    """(N,) or (N, C) as the bytes of a file."""
    out = io.BytesIO()
    soundfile.write(out, samples, rate_hz, format=kind, subtype=subtype)
    return out.getvalue()


def muxed(samples: np.ndarray, rate_hz: int, container: str, codec: str, *, video: bool = False) -> bytes:
    """(N,) mono encoded by FFmpeg, as phones and browsers do it; video adds a picture track."""
    import av

    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate_hz)
        stream.layout = "mono"
        picture = None
        if video:
            picture = file.add_stream("mpeg4", rate=10)
            picture.width, picture.height, picture.pix_fmt = 32, 32, "yuv420p"
        size = stream.codec_context.frame_size or 1024
        sample_format = stream.codec_context.format.name if stream.codec_context.format else "fltp"
        for start in range(0, len(samples), size):
            part = samples[start : start + size]
            if sample_format.startswith("s16"):
                part = np.round(part * 32768).astype(np.int16)
            elif sample_format.startswith("s32"):
                part = np.round(part * 2.0**31).astype(np.int32)
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(part[None]), format=sample_format, layout="mono")
            frame.sample_rate, frame.pts = rate_hz, start
            file.mux(stream.encode(frame))
            if picture is not None and start % (size * 10) == 0:
                image = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
                file.mux(picture.encode(image))
        file.mux(stream.encode(None))
        if picture is not None:
            file.mux(picture.encode(None))
    return out.getvalue()


@pytest.fixture(scope="session")
def tiny_networks(tmp_path_factory):
    """(speech tokenizer, speaker encoder): random ONNX files with the official inputs and outputs."""
    folder = tmp_path_factory.mktemp("networks")
    draw = np.random.default_rng(0)

    def weight(name, *shape):
        return numpy_helper.from_array(
            (draw.standard_normal(shape) / np.sqrt(shape[1] * shape[-1])).astype(np.float32), name
        )

    def conv(source, name, out):
        return helper.make_node("Conv", [source, name], [out], kernel_shape=[3], strides=[2], pads=[1, 1])

    powers = numpy_helper.from_array((3 ** np.arange(8)).astype(np.float32).reshape(1, 8, 1), "powers")
    one = numpy_helper.from_array(np.array(1, np.float32), "one")
    graph = helper.make_graph(
        [
            conv("feats", "w1", "a"), helper.make_node("Tanh", ["a"], ["b"]), conv("b", "w2", "c"),
            helper.make_node("Tanh", ["c"], ["d"]), helper.make_node("Round", ["d"], ["e"]),
            helper.make_node("Add", ["e", "one"], ["f"]), helper.make_node("Mul", ["f", "powers"], ["g"]),
            helper.make_node("ReduceSum", ["g", "axis"], ["h"], keepdims=0),
            helper.make_node("Cast", ["h"], ["indices"], to=TensorProto.INT32),
        ],
        "tokenizer",
        [helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "T"]),
         helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1])],
        [helper.make_tensor_value_info("indices", TensorProto.INT32, [1, "T4"])],
        [weight("w1", 16, 128, 3), weight("w2", 8, 16, 3), powers, one,
         numpy_helper.from_array(np.array([1], np.int64), "axis")],
    )  # fmt: skip
    save(onnx, helper, graph, folder / "speech_tokenizer.onnx")
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["input", "w"], ["a"]),
            helper.make_node("ReduceMean", ["a", "axis"], ["output"], keepdims=0),
        ],
        "speaker",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "T", 80])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 192])],
        [weight("w", 80, 192), numpy_helper.from_array(np.array([1], np.int64), "axis")],
    )
    save(onnx, helper, graph, folder / "speaker_encoder.onnx")
    return folder / "speech_tokenizer.onnx", folder / "speaker_encoder.onnx"


def save(onnx, helper, graph, file) -> None:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(file))
