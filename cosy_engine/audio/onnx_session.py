"""onnxruntime sessions that tell which provider really runs, and never fail because a GPU does not work."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np

from cosy_engine.errors import FETCH, ModelFilesError

log = logging.getLogger(__name__)

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
MEND = f"fetch the release again: {FETCH} v2 (or v3)"
LFS_POINTER = b"version https://git-lfs"


class OnnxModel:
    """One ONNX file ready to run, batch 1. Safe to share between threads.

    provider: what the session runs on, asked from the session itself: the library lists CUDA on machines where it
    cannot work. inputs: names as the file has them.
    """

    def __init__(self, file: str | Path, *, device: object = "auto", threads: int = 1):
        """device: "cpu", or "auto", "cuda", "cuda:N" to try the GPU first. threads: inside one operator.

        Raises: ModelFilesError: the file is missing, empty, a pointer, or no valid ONNX model.
        """
        self.file = Path(file)
        self._threads = threads
        _check_file(self.file)
        self._session = self._open(str(device))  # also a torch.device
        self.inputs = [given.name for given in self._session.get_inputs()]

    @property
    def provider(self) -> str:
        return self._session.get_providers()[0]

    def shape(self, i: int) -> list:
        """Declared shape of input i; free axes are names or None."""
        return list(self._session.get_inputs()[i].shape)

    def run(self, *values: np.ndarray) -> np.ndarray:
        """First output for the inputs in the file's order."""
        feed = dict(zip(self.inputs, values, strict=True))
        try:
            return self._session.run(None, feed)[0]
        except Exception as error:
            if self.provider == CPU:
                raise
            log.warning("%s failed on %s (%s): running it on the CPU from now on", self.file.name, self.provider, error)
            self._session = self._open("cpu")
            return self._session.run(None, feed)[0]

    def _open(self, device: str):
        os.environ.setdefault(
            "ORT_DISABLE_TELEMETRY", "1"
        )  # since 1.31 the library reports to its maker unless told not to
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3  # the library's own warnings about a missing GPU repeat what we log
        if device != "cpu" and CUDA in onnxruntime.get_available_providers():
            index = int(device.partition(":")[2] or 0)
            try:
                session = onnxruntime.InferenceSession(
                    str(self.file), options, providers=[(CUDA, {"device_id": index}), CPU]
                )
                if session.get_providers()[0] == CUDA:
                    return session
                log.info("%s: onnxruntime lists CUDA but gave %s", self.file.name, session.get_providers()[0])
            except Exception as error:  # the library raises many kinds, all of them mean "not on this GPU"
                log.info("%s: no CUDA session (%s), running on the CPU", self.file.name, error)
        try:
            return onnxruntime.InferenceSession(str(self.file), options, providers=[CPU])
        except Exception as error:
            raise ModelFilesError(f"{self.file} is not a valid ONNX model ({_short(error)}): {MEND}") from error


def _check_file(file: Path) -> None:
    if not file.is_file():
        raise ModelFilesError(f"{file} is missing: {MEND}")
    if not file.stat().st_size:
        raise ModelFilesError(f"{file} is empty, expected an ONNX model: {MEND}")
    with file.open("rb") as stream:
        if stream.read(len(LFS_POINTER)) == LFS_POINTER:
            raise ModelFilesError(f"{file} is a Git LFS pointer, not the model itself: {MEND}")


def _short(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:160] if str(error).strip() else type(error).__name__
