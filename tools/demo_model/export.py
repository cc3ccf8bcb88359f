"""Write the front end's ONNX files, with the published inputs and outputs, and check them against torch.

    python -m tools.demo_model.export tokenizer tokenizer.safetensors speech_tokenizer_v3.onnx [--check outside.npz]
    python -m tools.demo_model.export speaker   speaker.safetensors   campplus.onnx  [--check outside.npz]

Tokenizer: feats (1, 128, T) float32, feats_length (1) int32 -> indices (1, ceil(T / 4)) int32.
Speaker: input (1, T, 80) float32 -> output (1, 192) float32. Both for any T. Weights are kept as float16 and widened
when a session is made; they were rounded to float16 values before, so nothing changes.
"""

import argparse
import time

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from cosy_engine.audio.features import kaldi_fbank, whisper_log_mel
from tools.demo_model import front_end, schedule
from tools.demo_model.corpus import outside_file

SMALL = 256  # values; smaller tensors stay float32


def halve(path) -> None:
    """Large float initialisers to float16, with a Cast behind each."""
    model = onnx.load(path)
    graph, casts = model.graph, []
    for tensor in list(graph.initializer):
        if tensor.data_type != TensorProto.FLOAT:
            continue
        value = numpy_helper.to_array(tensor)
        half = value.astype(np.float16)
        if value.size < SMALL or not np.array_equal(half.astype(np.float32), value):
            continue
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(half, tensor.name + "_half"))
        casts.append(helper.make_node("Cast", [tensor.name + "_half"], [tensor.name], to=TensorProto.FLOAT))
    for node in reversed(casts):
        graph.node.insert(0, node)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def export(kind: str, net: torch.nn.Module, path) -> None:
    """One network to an ONNX file."""
    net.eval().requires_grad_(False)
    if kind == "tokenizer":
        arguments = (torch.randn(1, 128, 301), torch.tensor([301], dtype=torch.int32))
        names, axes = (["feats", "feats_length"], ["indices"]), {"feats": {2: "T"}, "indices": {1: "T4"}}
    else:
        arguments = (torch.randn(1, 301, 80),)
        names, axes = (["input"], ["output"]), {"input": {1: "T"}}
    torch.onnx.export(
        net, arguments, path, input_names=names[0], output_names=names[1], dynamic_axes=axes,
        opset_version=17, dynamo=False, do_constant_folding=False,
    )  # fmt: skip
    halve(path)


def check(kind: str, net: torch.nn.Module, path, clips: list[np.ndarray]) -> dict:
    """Agreement with torch on clips at 16 kHz, shapes of very short and of 30 s input, speed on one thread."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(features):
        if kind == "speaker":
            return session.run(None, {"input": features})[0]
        return session.run(None, {"feats": features, "feats_length": np.array([features.shape[2]], np.int32)})[0]

    result = {"clips": len(clips), "tokens": 0, "equal": 0} if kind == "tokenizer" else {"clips": len(clips)}
    for clip in clips:
        wave = torch.from_numpy(clip)[None]
        features = whisper_log_mel(wave) if kind == "tokenizer" else kaldi_fbank(wave)
        got = run(features.numpy())
        if kind == "tokenizer":
            want = net(features, torch.tensor([features.shape[2]])).numpy()
            assert got.dtype == np.int32 and got.shape == (1, -(-features.shape[2] // 4)) == want.shape
            assert got.min() >= 0 and got.max() < front_end.CODES
            result["tokens"] += want.size
            result["equal"] += int((got == want).sum())
        else:
            assert got.dtype == np.float32 and got.shape == (1, front_end.EMBEDDING_WIDTH)
            far = float(np.abs(net(features).numpy() - got).max())
            result["largest_difference"] = max(result.get("largest_difference", 0.0), far)
    for frames in (9, 10, 11, 12, 3000):
        shape = (1, 128, frames) if kind == "tokenizer" else (1, frames, 80)
        got = run(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
        assert got.shape == ((1, -(-frames // 4)) if kind == "tokenizer" else (1, front_end.EMBEDDING_WIDTH))
    ten_s = np.zeros((1, 128, 1000) if kind == "tokenizer" else (1, 998, 80), np.float32)
    run(ten_s)
    start = time.perf_counter()
    for _ in range(5):
        run(ten_s)
    return result | {"ms_for_10_s": round((time.perf_counter() - start) / 5 * 1000, 1)}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("kind", choices=("tokenizer", "speaker"))
    ap.add_argument("weights")
    ap.add_argument("onnx")
    ap.add_argument("--check", help="outside.npz")
    a = ap.parse_args()
    net = front_end.Tokenizer() if a.kind == "tokenizer" else front_end.SpeakerEncoder()
    schedule.load(a.weights, {a.kind: net})
    export(a.kind, net, a.onnx)
    if a.check:
        print(check(a.kind, net, a.onnx, [clip.wave for clip in outside_file.read(a.check)]))


if __name__ == "__main__":
    main()
