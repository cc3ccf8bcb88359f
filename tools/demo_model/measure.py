"""Measure the exported files on recorded clips: python measure.py MODELS_DIR CORPUS_FOLDER SPLIT [--resemblyzer]

Phoneme error rate through the codes alone (CTC head of the training tail against the clips' phoneme strings), equal error
rate of the speaker vectors, agreement of codes when half of a clip is heard. With --resemblyzer (pip package) also how the
vectors' cosine between voices ranks pairs compared with that embedding. CORPUS_FOLDER is one that corpus.py reads.
"""

import argparse
import os
import sys

import numpy as np
import onnxruntime as ort
import torch

import common
import data
import features
import models
from train_speaker import equal_error, rank
from train_tokenizer import edit

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import corpus  # noqa: E402


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models")
    ap.add_argument("folder")
    ap.add_argument("split")
    ap.add_argument("--speakers", help="only speakers whose name starts so")
    ap.add_argument("--resemblyzer", action="store_true")
    a = ap.parse_args()
    tok = ort.InferenceSession(os.path.join(a.models, "speech_tokenizer.onnx"), providers=["CPUExecutionProvider"])
    spk = ort.InferenceSession(os.path.join(a.models, "speaker_encoder.onnx"), providers=["CPUExecutionProvider"])
    tail = models.Tail(data.NPHONES, 33)
    common.load(os.path.join(a.models, "speech_tokenizer.safetensors"), dict(tail=tail))
    tail.eval()

    def codes(x):
        f = features.whisper_logmel(x)
        return torch.from_numpy(
            tok.run(None, {"feats": f.numpy(), "feats_length": np.array([f.shape[-1]], np.int32)})[0]
        )

    errors = phones = same_half = half = 0
    E, R, who = [], [], []
    if a.resemblyzer:
        from resemblyzer import VoiceEncoder

        other = VoiceEncoder("cpu", verbose=False)
    for o, x in corpus.read(a.folder, a.split):
        if a.speakers and not o["speaker"].startswith(a.speakers):
            continue
        x = features.resample(torch.from_numpy(x)[None], 24000, 16000)
        c = codes(x)
        with torch.no_grad():
            g = tail(models.vector(c), torch.tensor([c.shape[1]]))["ctc"][0].argmax(-1).tolist()
        said = [v for k, v in enumerate(g) if v and (k == 0 or g[k - 1] != v)]
        ref = [data.CLASS[p] for p in o["phonemes"] if data.CLASS.get(p, 0) > 0]
        errors, phones = errors + edit(said, ref), phones + len(ref)
        h = codes(x[:, : x.shape[1] // 2 // 640 * 640])
        same_half, half = same_half + int((h[0] == c[0, : h.shape[1]]).sum()), half + h.shape[1]
        E.append(spk.run(None, {"input": features.fbank(x).numpy()})[0][0])
        who.append(o["speaker"])
        if a.resemblyzer:
            R.append(other.embed_utterance(x[0].numpy()))
    E, who = unit(np.stack(E)), np.array(who)
    print(
        f"{len(who)} clips, {len(set(who))} voices: phoneme error rate {errors / phones:.3f}; codes of the first half alone equal {same_half / half:.3f}"
    )
    i = np.triu_indices(len(who), 1)
    same, s = who[i[0]] == who[i[1]], (E @ E.T)[i]
    if same.any() and not same.all():
        print(
            f"equal error rate {equal_error(s, same):.4f}; cosine {s[same].mean():.3f} same voice, {s[~same].mean():.3f} other"
        )
    if R:
        R = unit(np.stack(R))
        u = np.unique(who)
        j = np.triu_indices(len(u), 1)
        m = [unit(np.stack([X[who == k].mean(0) for k in u])) for X in (E, R)]
        print(
            f"Resemblyzer: equal error rate {equal_error((R @ R.T)[i], same):.4f}; Spearman over pairs of voices {np.corrcoef(*(rank((x @ x.T)[j]) for x in m))[0, 1]:.3f}"
        )


if __name__ == "__main__":
    main()
