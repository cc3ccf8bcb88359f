"""Speak a corpus's held-out split through the command line, ready for evaluate.py.

    python -m tools.demo_model.speak_split CORPUS dev VOICE_FOLDER wavs [--limit 80] [--stream] [--mode cross_lingual]
    python -m tools.demo_model.evaluate --list wavs/items.jsonl --wavs wavs --refs wavs/references

CORPUS holds index.jsonl (id, split, file, offset, bytes, speaker, text, seconds) and Ogg files joined in .bin files. The
reference of each item is another utterance of its voice, with its transcript.
"""

import argparse
import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from cosy_engine.__main__ import main as command_line


def items_of(folder: Path, split: str) -> list[dict]:
    """Rows of one split; `reference` is the row spoken before the item, of the same voice."""
    rows = [json.loads(line) for line in (folder / "index.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["split"] == split]
    by_voice: dict[str, list[dict]] = {}
    for row in rows:
        by_voice.setdefault(row["speaker"], []).append(row)
    paired = []
    for mine in by_voice.values():
        for k, row in enumerate(mine):
            if len(mine) > 1:
                paired.append(row | {"reference": mine[(k + 1) % len(mine)]})
    return paired


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("corpus", type=Path)
    ap.add_argument("split")
    ap.add_argument("model", type=Path)
    ap.add_argument("out", type=Path)
    ap.add_argument("--limit", type=int)
    ap.add_argument("--mode", choices=("zero_shot", "cross_lingual"), default="zero_shot")
    ap.add_argument("--precision", default="fp32")
    ap.add_argument("--stream", action="store_true")
    a = ap.parse_args()
    references = a.out / "references"
    references.mkdir(parents=True, exist_ok=True)
    listed = []
    for row in items_of(a.corpus, a.split)[: a.limit]:
        heard = row["reference"]
        clip = references / f"{heard['id']}.ogg"
        with open(a.corpus / heard["file"], "rb") as file:
            file.seek(heard["offset"])
            clip.write_bytes(file.read(heard["bytes"]))
        options = ["--model", str(a.model), "--reference", str(clip), "--text", row["text"], "--seed", "1"]
        options += ["--out", str(a.out / f"{row['id']}.wav"), "--mode", a.mode, "--precision", a.precision]
        options += ["--transcript", heard["text"]] if a.mode == "zero_shot" else []
        options += ["--stream"] if a.stream else []
        said = StringIO()
        with redirect_stdout(said):
            status = command_line(["clone", *options])
        report = json.loads(said.getvalue().splitlines()[-1]) if status == 0 else {"failed": status}
        print(row["id"], report.get("audio_s"), report.get("rtf"), flush=True)
        item = {"id": row["id"], "text": row["text"], "speaker": row["speaker"], "ref": clip.name}
        listed.append(item | {"ref_dur": row["seconds"], "report": report})
    lines = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in listed)
    (a.out / "items.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
