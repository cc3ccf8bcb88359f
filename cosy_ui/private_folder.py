"""The one folder for temporary files: only this user may look into it, it goes with the program, and the next start takes
away what a killed program has left."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cosy_engine.errors import CosyError

log = logging.getLogger(__name__)

PREFIX = "cosy-studio-"
MARK = "in-use"  # locked for as long as its program lives; the system unlocks it whatever way that ends
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)  # nothing can be written at the moment


class NoFolder(CosyError):
    """There is no place for temporary files."""

    code = "no_folder"


class NotWritten(CosyError):
    """A file could not be written, for no fault of the request."""

    code = "not_written"


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Raises: NotWritten: the disk is full, read-only, or its quota is used up; one line is logged."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        log.error("a file could not be written: %s", error.strerror)
        raise NotWritten(
            f"the file could not be written ({error.strerror}): tell the operator, or try again in a few minutes"
        ) from error


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder with rights for this user only; all temporary files of this program and its libraries go into it.

    Raises: NoFolder: nothing can be written, with the reason.
    """
    try:
        parent = Path(tempfile.gettempdir())
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))  # rights 0700
        mark = open(folder / MARK, "wb")  # noqa: SIM115  held open until the end
    except OSError as error:
        raise NoFolder(
            f"temporary files cannot be written ({error.strerror or error}): free some space, or let TMPDIR name a folder that can be written"
        ) from error
    before = tempfile.tempdir
    try:
        _lock(mark)
        tempfile.tempdir = str(folder)
        # A place of its own: what lies in there already Gradio serves as it is, and copies what comes from elsewhere.
        os.environ["GRADIO_TEMP_DIR"] = str(folder / "gradio")
        yield folder
    finally:
        tempfile.tempdir = before
        mark.close()
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Delete this user's folders whose program is gone."""
    for old in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if old.is_symlink() or not old.is_dir() or (hasattr(os, "getuid") and old.stat().st_uid != os.getuid()):
                continue
            with open(old / MARK, "r+b") as mark:
                if not _lock(mark):
                    continue
            shutil.rmtree(old, ignore_errors=True)


def _lock(file) -> bool:
    """Whether the file is now ours; False while another program holds it."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
