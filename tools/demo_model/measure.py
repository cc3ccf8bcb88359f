"""Measure the exported front end through the engine, as a user's clip goes through it.

    python -m tools.demo_model.measure outside.npz [--folder checkpoints] [--tail checkpoints/tokenizer.safetensors]

Per source of clips: phoneme error rate of the codes (read by the training tail's CTC head), and how many codes of the
first half of a clip stay the same when the rest is not heard.
"""

import argparse
import json
from pathlib import Path

import torch

from cosy_engine.audio.speaker_encoder import SpeakerEncoder
from cosy_engine.audio.speech_tokenizer import SpeechTokenizer
from tools.demo_model import data, front_end, schedule
from tools.demo_model.codes import CHECKPOINTS, DEMO_VOICE
from tools.demo_model.corpus import outside_file
from tools.demo_model.train_speaker import equal_error
from tools.demo_model.train_tokenizer import collapsed, edits


@torch.no_grad()
def measure(clips: list[outside_file.OutsideClip], tokenizer: SpeechTokenizer, encoder: SpeakerEncoder, tail) -> dict:
    """Figures per source, and the equal error rate over all pairs of clips."""
    sums, vectors = {}, []
    for clip in clips:
        wave = torch.from_numpy(clip.wave)
        codes = tokenizer(wave)
        half = tokenizer(wave[: len(wave) // 2 // 640 * 640])
        out = tail(front_end.digits(codes[None]), torch.tensor([len(codes)]))["ctc"][0].argmax(-1).tolist()
        truth = data.phone_classes(clip.phonemes)
        row = sums.setdefault(clip.source, [0, 0, 0, 0])
        new = (edits(collapsed(out), truth), len(truth), int((half == codes[: len(half)]).sum()), len(half))
        sums[clip.source] = [a + b for a, b in zip(row, new, strict=True)]
        vectors.append(torch.nn.functional.normalize(encoder(wave), dim=0))
    v = torch.stack(vectors)
    upper = torch.triu_indices(len(clips), len(clips), 1)
    same = [clips[i].voice == clips[j].voice for i, j in upper.T.tolist()]
    result = {
        source: {"phoneme_error_rate": round(wrong / total, 4), "half_clip_codes_equal": round(equal / heard, 4)}
        for source, (wrong, total, equal, heard) in sums.items()
    }
    return result | {"equal_error_rate": round(equal_error((v @ v.T)[tuple(upper)].numpy(), same), 4)}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("outside")
    ap.add_argument("--folder", type=Path, default=DEMO_VOICE)
    ap.add_argument("--tail", default=CHECKPOINTS / "tokenizer.safetensors")
    a = ap.parse_args()
    tail = front_end.Tail(data.N_PHONES, data.VOICE_AXES + 1).eval()
    schedule.load(a.tail, {"tail": tail})
    tokenizer = SpeechTokenizer(a.folder / "speech_tokenizer_v3.onnx", device="cpu")
    encoder = SpeakerEncoder(a.folder / "campplus.onnx")
    print(json.dumps(measure(outside_file.read(a.outside), tokenizer, encoder, tail), indent=1))


if __name__ == "__main__":
    main()
