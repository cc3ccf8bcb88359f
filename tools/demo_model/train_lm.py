"""Train the language model: the engine's SpeechLM at small size, on codes.npz files.

    python -m tools.demo_model.train_lm --codes codes0.npz codes1.npz --dev codes_dev.npz --text CosyVoice-BlankEN
        --out out --seconds 560 [--resume out/lm.safetensors]

Cross-entropy on speech tokens after text, whole or in turn with the text (sequences.py); the body and the head are the
engine's. One CUDA graph per length. Writes lm.safetensors (average weights, half precision), lm.json (gates), and
lm_dev.npz: codes of dev texts spoken after another utterance of the voice, for the flow and for listening.

Gate: the tokenizer's own phoneme head reads those codes; its phoneme error rate needs no flow. The share of correct
tokens is a poor guide, for prosody is random.
"""

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from cosy_engine.llm.speech_lm import SpeechLM
from cosy_engine.settings.model_spec import LlmSpec
from cosy_engine.text.tokenizer import TextTokenizer
from tools.demo_model import codes, cuda_graph, data, front_end, schedule, sizes, text_vocabulary
from tools.demo_model.corpus import phonemes_of
from tools.demo_model.sequences import IGNORED, Batches, Draw
from tools.demo_model.train_tokenizer import collapsed, edits

SHAPES = (128, 192, 256, 352, 448)


def initialise(lm: SpeechLM) -> None:
    """Small normal weights, as Qwen2 was begun with; outputs into the residual stream scaled down by the depth."""
    for name, p in lm.named_parameters():
        if p.ndim == 2:
            deep = name.endswith(("o_proj.weight", "down_proj.weight"))
            torch.nn.init.normal_(p, std=0.02 / (2 * lm.spec.layers) ** 0.5 if deep else 0.02)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)


def add_dropout(lm: SpeechLM, share: float) -> None:
    """Dropout on what attention and feed-forward add; only in training mode."""
    for layer in lm.backbone.layers:
        for part in (layer.self_attn, layer.mlp):
            part.register_forward_hook(lambda module, _, out: F.dropout(out, share, module.training))


def embedded(lm: SpeechLM, ids: Tensor) -> Tensor:
    """(B, T) ids of sequences.py -> (B, T, D)."""
    is_text = ids >= lm.spec.head_rows
    text = lm.embed_text((ids - lm.spec.head_rows) * is_text)
    return torch.where(is_text[..., None], text, lm.embed_speech(ids * ~is_text))


class Step:
    """One training step at one shape, on buffers that the next batch is copied into."""

    def __init__(self, lm: SpeechLM, optimiser, average, rows: int, positions: int, device: torch.device):
        self.lm, self.optimiser, self.average = lm, optimiser, average
        self.ids = torch.zeros(rows, positions, dtype=torch.int32, device=device)
        self.targets = torch.full_like(self.ids, IGNORED)
        self.run = None

    def fill(self, ids: Tensor, targets: Tensor) -> None:
        self.ids.copy_(ids, non_blocking=True)
        self.targets.copy_(targets, non_blocking=True)

    def __call__(self) -> dict[str, Tensor]:
        targets = self.targets.long().flatten()
        with torch.autocast(self.ids.device.type, torch.bfloat16, enabled=self.ids.is_cuda):
            hidden = self.lm.backbone(embedded(self.lm, self.ids.long()))
            logits = F.linear(hidden, self.lm.llm_decoder.weight)
        logits = logits.flatten(0, 1)
        loss = F.cross_entropy(logits.float(), targets, ignore_index=IGNORED)
        known = targets != IGNORED
        right = ((logits.argmax(-1) == targets) & known).sum() / known.sum()
        norm = cuda_graph.descend(self.optimiser, self.lm, loss, 1.0)
        self.average.update()
        return {"loss": loss.detach(), "accuracy": right, "norm": norm, "filled": known.float().mean()}


@torch.no_grad()
def speak(
    lm: SpeechLM, prompts: list[tuple[list[int], np.ndarray]], text_ids: list[int], seed: int = 0
) -> list[list[int]]:
    """Codes for rows of (text ids, reference codes), decoded together by the engine. text_ids: target ids of each row."""
    longest = max(len(ids) + len(speech) for ids, speech in prompts) + 2
    limits = [int(lm.spec.max_ratio * n) for n in text_ids]
    state = lm.start(len(prompts), longest + max(limits), max(limits))
    generator = torch.Generator(state.uniforms.device).manual_seed(seed)
    state.uniforms.uniform_(generator=generator)
    state.forbid_early[:, lm.spec.speech_tokens :] = True
    state.forbid[:, lm.spec.fill_id] = True
    state.min_tokens.copy_(torch.tensor([int(lm.spec.min_ratio * n) for n in text_ids]))
    state.max_tokens.copy_(torch.tensor(limits))
    for row, (ids, speech) in enumerate(prompts):
        lm.prefill(state, row, lm.prompt(ids, torch.from_numpy(speech.astype(np.int64))))
    for step in range(max(limits)):
        if step % 25 == 24 and bool(state.done.all()):
            break
        lm.decode_step(state)
    return [lm.read(state, row).tokens for row in range(len(prompts))]


@torch.no_grad()
def gates(lm: SpeechLM, dev: codes.Codes, tokens: TextTokenizer, tail, rows: int, device) -> tuple[dict, dict]:
    """Phoneme error rate of spoken dev texts with and without a reference, against that of the true codes."""
    known = phonemes_of.sentences()
    rng = np.random.default_rng(7)
    usable = [k for k, text in enumerate(dev.text) if text in known and 40 < dev.length[k] < 200]
    chosen = [int(k) for k in rng.permutation(usable)[:rows]]
    prefix = tokens.encode(text_vocabulary.PREFIX)
    cases = {"zero_shot": [], "cross_lingual": []}
    for k in chosen:
        same = [j for j in np.nonzero(dev.voice == dev.voice[k])[0] if j != k and dev.length[j] < 200] or [k]
        other = int(rng.choice(same))
        ids = tokens.encode_user(dev.text[k])
        cases["zero_shot"].append((prefix + tokens.encode_user(dev.text[other]) + ids, dev.of(other)))
        cases["cross_lingual"].append((prefix + ids, np.zeros(0, np.int16)))
    counts = [len(tokens.encode_user(dev.text[k])) for k in chosen]

    def errors(rows_of_codes) -> float:
        wrong = total = 0
        for k, row in zip(chosen, rows_of_codes, strict=True):
            row = torch.tensor([list(row) or [0]], device=device)
            out = tail(front_end.digits(row), torch.tensor([row.shape[1]], device=device))
            truth = data.phone_classes(known[dev.text[k]])
            wrong += edits(collapsed(out["ctc"][0].argmax(-1).tolist()), truth)
            total += len(truth)
        return wrong / max(1, total)

    result, spoken = {"phoneme_error_rate_true": errors([dev.of(k) for k in chosen])}, {}
    for name, prompts in cases.items():
        spoken[name] = speak(lm, prompts, counts)
        lengths = np.array([len(row) / dev.length[k] for row, k in zip(spoken[name], chosen, strict=True)])
        result |= {
            f"phoneme_error_rate_{name}": errors(spoken[name]),
            f"length_ratio_{name}": float(lengths.mean()),
            f"unended_{name}": float(
                np.mean([len(r) >= int(20 * n) for r, n in zip(spoken[name], counts, strict=True)])
            ),
        }
    return result, {"utterance": np.array(chosen), **{k: np.array(v, dtype=object) for k, v in spoken.items()}}


def main():
    ap = schedule.arguments(__doc__, seconds=560, rate=1.5e-3, corpus=False)
    ap.add_argument("--codes", nargs="+", required=True, help="codes.npz files of training speech")
    ap.add_argument("--dev", required=True, help="codes.npz of the dev split")
    ap.add_argument("--text", required=True, help="folder of text_vocabulary.py")
    ap.add_argument("--tail", default=codes.CHECKPOINTS / "tokenizer.safetensors")
    ap.add_argument("--tokens", type=int, default=24576, help="positions of a batch")
    ap.add_argument("--width", type=int, default=sizes.LM["width"])
    ap.add_argument("--layers", type=int, default=sizes.LM["layers"])
    ap.add_argument("--dropout", type=float, default=0.1)
    ap.add_argument("--workers", type=int, default=10)
    ap.add_argument("--gate-rows", type=int, default=96)
    a = ap.parse_args()
    device, out = torch.device(a.device), Path(a.out)
    torch.manual_seed(4)
    log = schedule.Log(out / "lm.log")
    train, dev = codes.load(a.codes), codes.load([a.dev])
    tokens = TextTokenizer(a.text, "v3")
    ids_of, prefix = text_vocabulary.variants(train.text, a.text)
    spec: LlmSpec = sizes.lm_spec(tokens.size, width=a.width, layers=a.layers)
    draw = Draw(spec, train, ids_of, prefix, longest=SHAPES[-1])
    batches = Batches(draw, a.tokens, SHAPES, seed=int(log.start))
    loader = iter(DataLoader(batches, batch_size=None, num_workers=a.workers, pin_memory=device.type == "cuda"))
    lm = SpeechLM(spec).to(device)
    initialise(lm)
    if a.resume:
        schedule.load(a.resume, {"lm": lm})
    add_dropout(lm, a.dropout)
    decayed = {"betas": (0.9, 0.95), "weight_decay": 0.1}
    optimiser, rate = cuda_graph.optimiser(lm, a.rate, **decayed)
    average = cuda_graph.DeviceAverage(lm, 0.999)
    hours = float(train.length.sum() / 25 / 3600)
    log(note="loaded", hours=hours, utterances=len(train.text), parameters=schedule.parameters(lm))
    make = partial(Step, lm, optimiser, average)
    steps: dict[int, Step] = {}
    clock = schedule.Clock(a.seconds, a.steps)
    while clock.progress() < 1:
        positions, ids, targets = next(loader)
        rate.fill_(clock.rate(a.rate))
        average.set_step(clock.step)
        if positions not in steps:
            steps[positions] = make(*ids.shape, device)
            steps[positions].fill(ids, targets)
            steps[positions].run = cuda_graph.captured(steps[positions])
        steps[positions].fill(ids, targets)
        log.add(steps[positions].run())
        clock.step += 1
        if clock.step % 500 == 0 or clock.step == 20:
            log.means(step=clock.step, rate=rate)
    del loader
    average.apply()
    lm.eval()
    facts = {"steps": clock.step, "seconds": round(clock.elapsed_s()), "hours": round(hours, 2), "width": a.width}
    schedule.save(out / "lm.safetensors", {"lm": lm}, half=True, **facts)
    tail = front_end.Tail(data.N_PHONES, data.VOICE_AXES + 1).to(device).eval()
    schedule.load(a.tail, {"tail": tail})
    result, spoken = gates(lm, dev, tokens, tail, a.gate_rows, device)
    result = facts | {"parameters": schedule.parameters(lm)} | result
    (out / "lm.json").write_text(json.dumps(result, indent=1))
    np.savez(out / "lm_dev.npz", **spoken)
    log(note="done", **result)


if __name__ == "__main__":
    main()
