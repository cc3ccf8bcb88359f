"""Train the speech tokenizer.

    python -m tools.demo_model.train_tokenizer --train c/0 c/1 c/2 --guests c/guests --dev c/dev --out out --seconds 480

The encoder hears the clean clip and an augmented copy; all targets come from the clean one. The codes must say which
phoneme is spoken (frame labels from the synthesiser's own durations, and CTC), how pitch and energy move relative to
the utterance's own level, and the rest of the mel that the voice does not already explain: the tail is told who speaks,
so the codes need not say it. Clips of the guest synthesiser train the phoneme losses only. Writes
tokenizer.safetensors (averaged weights, rounded to float16 values) and tokenizer.json (gates).
"""

import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from cosy_engine.audio.features import flow_mel, resample, whisper_log_mel
from cosy_engine.settings.model_spec import MelSpec
from tools.demo_model import augment, data, front_end, schedule
from tools.demo_model.corpus import outside_file

TOKEN_SAMPLES = 960  # at 24 kHz: 25 tokens a second
MEL_MEAN, MEL_SCALE = -5.5, 2.5


def prepare(c: data.Corpus, ids: np.ndarray, skip: np.ndarray, noisy=True, rate: np.ndarray | None = None) -> dict:
    """Features and targets of a batch.

    Args: ids (B,) utterances; skip (B,) grid steps of 5 ms left out at the start; rate (B,) how much faster and higher
    each clip is played. Returns: feats (2 B, 128, T) clean then augmented (B rows if not noisy), and the targets.
    """
    device = c.device
    samples = c.samples[ids] if rate is None else (c.samples[ids] / rate).astype(np.int64)
    tokens_host = torch.from_numpy(((samples - skip * data.GRID_SAMPLES) * 2 // 3 // 160 + 3) // 4)
    phones_host = torch.from_numpy(c.phones_host[ids])
    longest = int(samples.max()) // 1920 * 1920 + 1920
    ids, skip = torch.as_tensor(ids, device=device), torch.from_numpy(skip).to(device)
    speed = None if rate is None else torch.from_numpy(rate).float().to(device)
    n24 = torch.from_numpy(samples).to(device) - skip * data.GRID_SAMPLES
    wave = c.wave(ids, longest, skip * data.GRID_SAMPLES, rate=speed)
    wave16, n16 = resample(wave, 24000, 16000), n24 * 2 // 3
    clean = whisper_log_mel(wave16)
    feats = clean
    if noisy:
        feats = torch.cat([clean, augment.spectrum(whisper_log_mel(augment.channel(wave16, n16)))])
    frames = clean.shape[-1] // 4
    middle = torch.arange(frames, device=device)[None] * 8 + 4 + skip[:, None]
    if rate is not None:
        middle = (middle * speed[:, None]).long()
    labels = c.grid(c.labels, ids, middle, 0).long()
    hz = c.grid(c.pitch_hz, ids, middle, 0).float()
    mel = (flow_mel(wave, MelSpec()) - MEL_MEAN) / MEL_SCALE  # (B, 2 T', 80)
    tokens = (n16 // 160 + 3) // 4
    valid = torch.arange(frames, device=device)[None] < tokens[:, None]
    voiced = (hz > 0) & valid
    log_hz = torch.log(hz.clamp(min=50))
    middle_hz = torch.where(voiced, log_hz, torch.nan).nanmedian(1, keepdim=True).values.nan_to_num(5.0)
    energy = mel.view(len(ids), frames, 2, 80).mean((2, 3))
    energy = energy - (energy * valid).sum(1, keepdim=True) / valid.sum(1, keepdim=True)
    return {
        "ids": ids, "feats": feats, "frames": n16 // 160, "valid": valid, "labels": torch.where(valid, labels, -1),
        "voiced": voiced, "f0": ((log_hz - middle_hz) / 0.25).clamp(-4, 4), "energy": energy, "mel": mel,
        "sequences": c.sequences(ids), "tokens_host": tokens_host, "phones_host": phones_host,
    }  # fmt: skip


def entropy_bits(digits: Tensor, valid: Tensor) -> Tensor:
    """Entropy of soft codes: joint over two random groups of four digits (81 states each), mean over the groups."""
    h, w = digits.flatten(0, 1), valid.flatten()[:, None] / valid.sum()
    states = torch.stack([(-h).clamp(min=0) ** 2, 1 - h * h, h.clamp(min=0) ** 2], -1)
    states = states / states.sum(-1, keepdim=True)  # (B T, 8, 3)
    total = 0
    for group in torch.randperm(8).view(2, 4).tolist():
        p = states[:, group[0]]
        for k in group[1:]:
            p = (p[..., None] * states[:, k, None]).flatten(1)
        p = (p * w).sum(0)
        total = total - (p * torch.log2(p + 1e-9)).sum()
    return total / 2


def losses(tokenizer, tail, b: dict, voice: Tensor | None, amp):
    """Total, parts, digits before rounding, the tail's outputs. voice (B, V) None: a guest, phoneme losses only."""
    batch = len(b["ids"])
    doubled = b["feats"].shape[0] == 2 * batch

    def two(x):
        return torch.cat([x, x]) if doubled else x

    with amp:
        h, n = tokenizer.encode(b["feats"], two(b["frames"]))
        q = h + (torch.round(h) - h).detach()
        out = tail(q, n, None if voice is None else two(voice))
    valid, labels = two(b["valid"]), two(b["labels"])
    part = {}
    logits = out["phone"].float()
    part["phone"] = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-1)
    log_p = F.log_softmax(out["ctc"].float(), -1).transpose(0, 1)
    lengths = two(b["tokens_host"]), two(b["phones_host"])
    part["ctc"] = F.ctc_loss(log_p, two(b["sequences"]), *lengths, blank=0, zero_infinity=True) / 3
    part["commit"] = (((h - torch.round(h).detach()) ** 2).mean(-1) * valid).sum() / valid.sum()
    total = part["phone"] + 0.2 * part["ctc"] + 0.25 * part["commit"]
    if doubled:
        clean, noisy = h[:batch], h[batch:]
        part["same"] = (((clean.detach() - noisy) ** 2).mean(-1) * b["valid"]).sum() / b["valid"].sum()
        total = total + part["same"]
    if voice is not None:
        pitch, voiced = out["pitch"].float(), two(b["voiced"])
        part["f0"] = ((pitch[..., 0] - two(b["f0"])).abs() * voiced).sum() / voiced.sum().clamp(min=1)
        bce = F.binary_cross_entropy_with_logits(pitch[..., 1], voiced.float(), reduction="none")
        part["voiced"] = (bce * valid).sum() / valid.sum()
        part["energy"] = ((pitch[..., 2] - two(b["energy"])).abs() * valid).sum() / valid.sum()
        valid2 = valid.repeat_interleave(2, 1)[..., None]
        part["mel"] = ((out["mel"].float() - two(b["mel"])).abs() * valid2).sum() / valid2.sum() / 80
        part["entropy"] = entropy_bits(h, valid)
        # enough spread to use the code space, no reward for more
        total = total + 0.3 * part["mel"] + 0.1 * (part["f0"] + part["voiced"] + part["energy"])
        total = total - 0.04 * part["entropy"].clamp(max=5.0)
    with torch.no_grad():
        known = labels >= 0
        part["accuracy"] = ((logits.argmax(-1) == labels) & known).sum() / known.sum()
    return total, part, h, out


def edits(a, b) -> int:
    """Edit distance of two sequences."""
    row = np.arange(len(b) + 1)
    for i, x in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))
    return int(row[-1])


def collapsed(classes) -> list[int]:
    """CTC's reading of the best class per frame: repeats joined, blanks (0) dropped."""
    return [c for k, c in enumerate(classes) if c and (k == 0 or classes[k - 1] != c)]


@torch.no_grad()
def phoneme_errors(tokenizer, tail, waves: list[np.ndarray], phonemes: list[str], device) -> float:
    """Phoneme error rate through the codes of single clips at 16 kHz, as inference hears them."""
    wrong = total = 0
    for wave, said in zip(waves, phonemes, strict=True):
        feats = whisper_log_mel(torch.from_numpy(wave).to(device)[None])
        h, n = tokenizer.encode(feats, torch.tensor([feats.shape[-1]], device=device))
        heard = collapsed(tail(torch.round(h), n)["ctc"][0].argmax(-1).tolist())
        truth = data.phone_classes(said)
        wrong, total = wrong + edits(heard, truth), total + len(truth)
    return wrong / max(1, total)


def outside_errors(tokenizer, tail, path, device) -> dict[str, float]:
    """Phoneme error rate on each source of an outside.npz."""
    clips, result = outside_file.read(path), {}
    for source in dict.fromkeys(clip.source for clip in clips):
        mine = [clip for clip in clips if clip.source == source]
        waves, spoken = [clip.wave for clip in mine], [clip.phonemes for clip in mine]
        result[f"phoneme_error_rate_{source.replace(' ', '_')}"] = phoneme_errors(
            tokenizer, tail, waves, spoken, device
        )
    return result


@torch.no_grad()
def gates(tokenizer, tail, c: data.Corpus, target: Tensor, amp, limit: int | None = None) -> dict:
    """On unseen voices and sentences, clean and augmented."""
    torch.manual_seed(5)
    device = c.device
    order = np.argsort(c.seconds)[:limit]
    histogram = torch.zeros(front_end.CODES, device=device)
    hits = {k: torch.zeros(4, device=device) for k in ("clean", "noisy")}
    flips, mels, wrong, total = torch.zeros(3, device=device), [], 0, 0
    for at in range(0, len(order), 32):
        ids = order[at : at + 32]
        b = prepare(c, ids, np.zeros(len(ids), np.int64))
        _, part, h, out = losses(tokenizer, tail, b, target[c.voice[b["ids"]]], amp)
        n = len(ids)
        codes, valid = tokenizer.codes(h), b["valid"]
        histogram += torch.bincount(codes[:n][valid].long(), minlength=front_end.CODES)
        digit_flips = (torch.round(h[:n]) != torch.round(h[n:]))[valid].sum()
        flips += torch.stack([(codes[:n] != codes[n:])[valid].sum(), digit_flips, valid.sum()])
        mels.append(part["mel"].item())
        truth = b["labels"]
        for name, logits in (("clean", out["phone"][:n]), ("noisy", out["phone"][n:])):
            said, known, speech = logits.argmax(-1), truth >= 0, truth > 0
            right = said == truth
            near = right.clone()  # right within one frame of the boundary
            near[:, 1:] |= said[:, 1:] == truth[:, :-1]
            near[:, :-1] |= said[:, :-1] == truth[:, 1:]
            of_speech = (right & speech).sum() * known.sum() / speech.sum()
            hits[name] += torch.stack([(right & known).sum(), (near & known).sum(), of_speech, known.sum()])
        best, sequences = out["ctc"][:n].argmax(-1).cpu().numpy(), b["sequences"].cpu().numpy()
        for k in range(n):
            heard = collapsed(best[k, : b["tokens_host"][k]].tolist())
            wrong += edits(heard, sequences[k, : b["phones_host"][k]].tolist())
            total += int(b["phones_host"][k])
    p = histogram / histogram.sum()
    result = {}
    for name, hit in hits.items():
        result[f"frame_accuracy_{name}"] = (hit[0] / hit[3]).item()
        result[f"frame_accuracy_within_one_{name}"] = (hit[1] / hit[3]).item()
        result[f"frame_accuracy_speech_{name}"] = (hit[2] / hit[3]).item()
    return result | {
        "phoneme_error_rate": wrong / total,
        "codes_used": int((histogram > 0).sum()),
        "frames": int(histogram.sum()),
        "entropy_bits": -(p[p > 0] * torch.log2(p[p > 0])).sum().item(),
        "codes_for_90_percent": int((p.sort(descending=True).values.cumsum(0) < 0.9).sum()) + 1,
        "token_flips_under_noise": (flips[0] / flips[2]).item(),
        "digit_flips_under_noise": (flips[1] / flips[2] / front_end.DIGITS).item(),
        "mel_l1": float(np.mean(mels)),
    }


@torch.no_grad()
def encode_all(
    tokenizer, c: data.Corpus, amp, cap_s: float = 1500.0, limit: int | None = None, noisy: bool = False
) -> list[np.ndarray]:
    """Codes of every utterance, int16, in the corpus's order (None for those beyond `limit`, shortest first).

    noisy: as a microphone would have heard it.
    """
    order = np.argsort(c.seconds)[:limit]
    out, at = [None] * len(c.items), 0
    while at < len(order):
        probe = min(at + int(cap_s / c.seconds[order[at]]), len(order) - 1)
        ids = order[at : at + max(1, int(cap_s / c.seconds[order[probe]]))]
        at += len(ids)
        t = torch.as_tensor(ids, device=c.device)
        wave = c.wave16(t, int(c.samples[ids].max()) // 1920 * 1920 + 1920)
        wave = augment.channel(wave, c.n[t] * 2 // 3) if noisy else wave
        with amp:
            h, n = tokenizer.encode(whisper_log_mel(wave), c.n[t] * 2 // 3 // 160)
        codes, n = tokenizer.codes(h).cpu().numpy(), n.cpu().numpy()
        for k, u in enumerate(ids):
            out[u] = codes[k, : n[k]].astype(np.int16)
    return out


def voice_probe(codes: list[np.ndarray], voice: np.ndarray, voices: int, device, steps=1500) -> float:
    """Can a small network tell the voice from the codes alone? Trained on 80 % of utterances, accuracy on the rest."""
    torch.manual_seed(0)
    keep = [k for k, x in enumerate(codes) if x is not None]
    width, blank = 100, front_end.CODES
    x = torch.full((len(keep), width), blank, dtype=torch.long)
    for row, k in enumerate(keep):
        v = torch.from_numpy(codes[k].astype(np.int64))[:width]
        x[row, : len(v)] = v
    x, y = x.to(device), torch.as_tensor(voice[keep], device=device)
    held = torch.arange(len(keep), device=device) % 5 == 0
    table = torch.nn.Embedding(blank + 1, 128, padding_idx=blank).to(device)
    net = torch.nn.Sequential(
        torch.nn.LayerNorm(128), torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Dropout(0.2),
        torch.nn.Linear(256, voices),
    ).to(device)  # fmt: skip
    optimiser = torch.optim.AdamW([*table.parameters(), *net.parameters()], 2e-3, weight_decay=0.05)

    def guess(rows):
        return net(table(x[rows]).sum(1) / (x[rows] < blank).sum(1, keepdim=True).clamp(min=1))

    train, test, best = torch.nonzero(~held)[:, 0], torch.nonzero(held)[:, 0], 0.0
    for step in range(steps):
        rows = train[torch.randint(len(train), (1024,), device=device)]
        optimiser.zero_grad()
        F.cross_entropy(guess(rows), y[rows]).backward()
        optimiser.step()
        if step % 250 == 249:
            net.eval()
            with torch.no_grad():
                best = max(best, (guess(test).argmax(-1) == y[test]).float().mean().item())
            net.train()
    return best


def main():
    ap = schedule.arguments(__doc__, seconds=480, rate=1e-3)
    ap.add_argument("--guests", help="folder of guests.py: one batch in --guest-every is theirs")
    ap.add_argument("--guest-every", type=int, default=8)
    ap.add_argument("--outside", help="outside.npz: phoneme errors on voices from outside")
    ap.add_argument("--batch-seconds", type=float, default=400)
    ap.add_argument("--warp", type=float, default=0, help="half of the clips play up to exp(+-this) faster and higher")
    a = ap.parse_args()
    device, out = torch.device(a.device), Path(a.out)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # features need full float32
    torch.manual_seed(1)
    log = schedule.Log(out / "tokenizer.log")
    c, d = data.Corpus(a.train, device, a.hours), data.Corpus([a.dev], device)
    guests = data.Corpus([a.guests], device) if a.guests else None
    z, basis = data.voice_targets(c.style, c.shift)
    zd, _ = data.voice_targets(d.style, d.shift, basis)
    target, target_dev = torch.from_numpy(z).to(device), torch.from_numpy(zd).to(device)
    tokenizer, tail = front_end.Tokenizer().to(device), front_end.Tail(data.N_PHONES, target.shape[1]).to(device)
    if a.resume:
        schedule.load(a.resume, {"tokenizer": tokenizer, "tail": tail})
    both = torch.nn.ModuleList([tokenizer, tail])
    on_gpu = device.type == "cuda"
    optimiser = torch.optim.AdamW(both.parameters(), a.rate, betas=(0.9, 0.98), weight_decay=0.02, fused=on_gpu)
    average = schedule.Average(both)
    amp = torch.autocast(device.type, torch.bfloat16, enabled=on_gpu)
    full = torch.autocast(device.type, torch.bfloat16, enabled=False)
    hours = float(c.seconds.sum() / 3600)
    log(note="loaded", hours=hours, utterances=len(c.items), parameters=schedule.parameters(tokenizer))
    rng = np.random.default_rng(int(time.time()))
    stream = data.batches(c.seconds, a.batch_seconds, rng)
    guest_stream = data.batches(guests.seconds, a.batch_seconds, rng) if guests else None
    clock = schedule.Clock(a.seconds, a.steps)
    while clock.progress() < 1:
        for group in optimiser.param_groups:
            group["lr"] = clock.rate(a.rate)
        guest = guests is not None and clock.step % a.guest_every == a.guest_every - 1
        source, ids = (guests, next(guest_stream)) if guest else (c, next(stream))
        rate = np.exp(rng.uniform(-a.warp, a.warp, len(ids)) * (rng.random(len(ids)) < 0.5)) if a.warp else None
        b = prepare(source, ids, rng.integers(0, 12, len(ids)), rate=rate)
        voice = None if guest else target[c.voice[b["ids"]]]
        if rate is not None and not guest:
            voice[:, -1] += torch.from_numpy(np.log(rate) / data.SHIFT_SPREAD).float().to(device)
        total, part, *_ = losses(tokenizer, tail, b, voice, amp)
        optimiser.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        optimiser.step()
        average.update()
        clock.step += 1
        log.add(part, prefix="guest_" if guest else "")
        if clock.step % 200 == 0 or clock.step == 20:
            log.means(step=clock.step, rate=optimiser.param_groups[0]["lr"])
    average.apply()
    both.eval()
    for module in both:
        schedule.round_to_half(module)
    modules = {"tokenizer": tokenizer, "tail": tail}
    schedule.save(out / "tokenizer.safetensors", modules, phones=data.PHONES, steps=clock.step)
    result = {
        "steps": clock.step, "seconds": round(clock.elapsed_s()), "hours": round(hours, 2),
        "dev_utterances": len(d.items), "dev_voices": len(d.voices), "parameters": schedule.parameters(tokenizer),
    }  # fmt: skip
    result |= gates(tokenizer, tail, d, target_dev, full)
    if a.outside:
        result |= outside_errors(tokenizer, tail, a.outside, device)
    (out / "tokenizer.json").write_text(json.dumps(result, indent=1))
    log(note="gates", **result)
    codes = encode_all(tokenizer, c, full, cap_s=1500 if on_gpu else 60)
    histogram = np.bincount(np.concatenate([x for x in codes if x is not None]), minlength=front_end.CODES)
    p = histogram / histogram.sum()
    hit = voice_probe(codes, c.voice.cpu().numpy(), len(c.voices), device, 1500 if on_gpu else 4)
    result |= {
        "train_codes_used": int((histogram > 0).sum()),
        "train_entropy_bits": float(-(p[p > 0] * np.log2(p[p > 0])).sum()),
        "train_frames": int(histogram.sum()),
        "voice_probe_accuracy": hit,
        "voice_probe_times_chance": hit * len(c.voices),
    }
    (out / "tokenizer.json").write_text(json.dumps(result, indent=1))
    log(note="done", **result)


if __name__ == "__main__":
    main()
