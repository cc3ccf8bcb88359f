"""English text -> the teacher's phoneme string, through libespeak-ng (Debian package espeak-ng).

python phonemes.py sentences.jsonl out.jsonl     # adds "phonemes" to every line
python phonemes.py "Some text."
"""

import ctypes
import ctypes.util
import re

_lib = None


def _load(voice="en-us"):
    global _lib
    if _lib is None:
        name = ctypes.util.find_library("espeak-ng") or "libespeak-ng.so.1"
        _lib = ctypes.CDLL(name)
        _lib.espeak_TextToPhonemes.restype = ctypes.c_char_p
        _lib.espeak_TextToPhonemes.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_int]
        _lib.espeak_Initialize(2, 0, None, 0)
        _lib.espeak_SetVoiceByName(voice.encode())
    return _lib


def _ipa(chunk):
    lib = _load()
    buf = ctypes.create_string_buffer(chunk.encode("utf-8"))
    ptr = ctypes.c_void_p(ctypes.addressof(buf))
    out = []
    mode = 0x02 | (1 << 7) | (ord("^") << 8)  # IPA, tie character
    while ptr.value:
        r = lib.espeak_TextToPhonemes(ctypes.byref(ptr), 1, mode)
        out.append(r.decode("utf-8") if r else "")
    return " ".join(x.strip() for x in out if x.strip())


_E2M = sorted(
    {
        "ʔˌn\u0329": "ʔn",
        "ʔn\u0329": "ʔn",
        "a^ɪ": "I",
        "a^ʊ": "W",
        "d^ʒ": "ʤ",
        "e^ɪ": "A",
        "e": "A",
        "t^ʃ": "ʧ",
        "ɔ^ɪ": "Y",
        "ə^l": "ᵊl",
        "ʲo": "jo",
        "ʲə": "jə",
        "ʲ": "",
        "ɚ": "əɹ",
        "r": "ɹ",
        "x": "k",
        "ç": "k",
        "ɐ": "ə",
        "ɬ": "l",
        "\u0303": "",
    }.items(),
    key=lambda kv: -len(kv[0]),
)


def _map(ps):
    for a, b in _E2M:
        ps = ps.replace(a, b)
    ps = re.sub(r"(\S)\u0329", r"ᵊ\1", ps).replace("\u0329", "")
    ps = ps.replace("o^ʊ", "O").replace("ɜːɹ", "ɜɹ").replace("ɜː", "ɜɹ").replace("ɪə", "iə").replace("ː", "")
    ps = ps.replace("o", "ɔ").replace("ɾ", "T").replace("ʔ", "t").replace("ɹɹ", "ɹ")
    return re.sub(r"\([a-z-]+\)", "", ps).replace("^", "").replace("-", "").replace("_", " ")


_PUNCT = re.compile(r"(\s*[;:,.!?—…\"“”()]+\s*)")


def phonemize(text):
    text = text.replace("’", "'").replace("‘", "'")
    parts = _PUNCT.split(text)
    out = []
    for i, p in enumerate(parts):
        if i % 2:
            out.append(p)
        elif p.strip():
            lead = " " if p[:1] == " " else ""
            out.append(lead + _map(_ipa(p)) + (" " if p[-1:] == " " else ""))
    return re.sub(r"\s+", " ", "".join(out)).strip()


if __name__ == "__main__":
    import json
    import sys

    if sys.argv[1].endswith(".jsonl"):
        with open(sys.argv[1], encoding="utf-8") as f, open(sys.argv[2], "w", encoding="utf-8") as g:
            for line in f:
                o = json.loads(line)
                o["phonemes"] = phonemize(o["text"])
                g.write(json.dumps(o, ensure_ascii=False) + "\n")
    else:
        print(phonemize(" ".join(sys.argv[1:])))
