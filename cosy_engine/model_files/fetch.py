"""Resumable download of a release; the only code of the package that uses the network, and only when asked to."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from cosy_engine.errors import ModelFilesError
from cosy_engine.model_files.catalog import CATALOG
from cosy_engine.model_files.layout import find_release

SOURCES = ("huggingface", "modelscope")


def fetch(release: str, target: Path, source: str = "huggingface") -> Path:
    """Download the needed files of a release into target/<folder>; a second call continues where the first stopped.

    Returns: the model folder, checked to be complete.
    Raises: ModelFilesError: unknown release or source, too little disk, no network, incomplete result.
    """
    if release not in CATALOG:
        raise ModelFilesError(f"unknown release {release!r}: choose {' or '.join(CATALOG)}")
    if source not in SOURCES:
        raise ModelFilesError(f"unknown source {source!r}: choose {' or '.join(SOURCES)}")
    entry = CATALOG[release]
    folder = Path(target) / entry.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelFilesError(f"{folder} cannot be made ({error.strerror}): choose another folder with --to") from error
    have_gb = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e9
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb + have_gb < entry.size_gb * 1.05:
        raise ModelFilesError(
            f"{entry.title} needs {entry.size_gb:.1f} GB, {folder.resolve().anchor} has {free_gb:.1f} GB free: "
            "make room, or choose another folder with --to"
        )
    try:
        if source == "huggingface":
            _huggingface(entry.repos[source], folder, entry.files)
        else:
            _modelscope(entry.repos[source], folder, entry.files)
    except (OSError, RuntimeError, ValueError) as error:  # the clients wrap network errors in these
        if not any(folder.rglob("*.*")):
            shutil.rmtree(folder, ignore_errors=True)
        other = next(name for name in SOURCES if name != source)
        raise ModelFilesError(
            f"{entry.title} could not be downloaded from {source}. No network? Try again later (it "
            f"resumes), try --source {other}, or copy the release's files into {folder} by hand; until then the built-in "
            "miniature runs without any download."
        ) from error
    find_release(folder)
    return folder


def _huggingface(repo: str, folder: Path, files: tuple[str, ...]) -> None:
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        snapshot_download(repo, local_dir=folder, allow_patterns=list(files))
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx.HTTPError) as error:
        raise OSError(str(error)) from error


def _modelscope(repo: str, folder: Path, files: tuple[str, ...]) -> None:
    if importlib.util.find_spec("modelscope") is None:
        raise ModelFilesError("the source modelscope needs its package: pip install modelscope")
    from modelscope import snapshot_download  # optional, not in requirements.txt

    snapshot_download(repo, local_dir=str(folder), allow_patterns=list(files))
