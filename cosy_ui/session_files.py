"""Which files in Gradio's cache belong to which open page, so that they go with it and not only by their age."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cosy_ui.heap import give_back

log = logging.getLogger(__name__)

AGE_S = 3600.0
BROKEN_S = 120.0  # of an upload that has not grown for so long


class SessionFiles:
    """Files by owner. Equal uploads share one file, which goes with the last of its owners. Safe to use from any thread.

    folder: nothing outside it is ever touched. gone: called with each path that was deleted. clock: seconds that never jump.
    """

    def __init__(self, folder: Path, gone: Callable[[str], None] = lambda path: None, clock=time.monotonic):
        self.folder, self._gone, self._clock = folder.resolve(), gone, clock
        self._owned: dict[str, set[str]] = {}
        self._seen: dict[tuple[str, int], float] = {}  # (path, time of change) -> when it was first seen
        self._lock = threading.Lock()

    def note(self, owner: str, paths: Iterator[str]) -> None:
        """The page uses these files; what lies elsewhere, or is no file, is left alone."""
        mine = {path for path in paths if self._ours(path)}
        if mine:
            with self._lock:
                self._owned.setdefault(owner, set()).update(mine)

    def drop(self, owner: str) -> None:
        """The page is gone: delete what nobody else uses."""
        with self._lock:
            mine = self._owned.pop(owner, set())
            left = mine.difference(*self._owned.values())
            for path in left:
                self._delete(Path(path))

    def sweep(self, keep: set[str]) -> None:
        """Delete what has lain there for AGE_S, whoever's it is (programs that call say no goodbye), but not `keep`."""
        with self._lock:
            now, old, self._seen = self._clock(), self._seen, {}
            whole = ((file, AGE_S) for file in self.folder.glob("*/*"))
            coming = ((file, BROKEN_S) for file in self.folder.glob("*"))  # what broke off lies beside the folders for ever
            for file, age_s in (*whole, *coming):
                try:
                    key = str(file), file.lstat().st_mtime_ns
                except OSError:  # gone meanwhile
                    continue
                since = self._seen[key] = old.get(key, now)
                if now - since > age_s and str(file) not in keep and not file.is_dir():
                    self._delete(file)
            for owner, paths in list(self._owned.items()):
                paths -= {path for path in paths if not Path(path).exists()}
                if not paths:
                    del self._owned[owner]

    def _ours(self, path: str) -> bool:
        try:
            file = Path(path)
            return (
                file.is_absolute()
                and not file.is_symlink()
                and file.is_file()
                and self.folder in file.resolve().parents
            )
        except (OSError, ValueError):
            return False

    def _delete(self, file: Path) -> None:
        try:
            file.unlink(missing_ok=True)
            if file.parent != self.folder:
                file.parent.rmdir()  # Gradio makes one for each file
        except OSError as error:
            log.debug("a file of a closed page stays: %s", error.strerror)
        self._gone(str(file))


def keep_house(sessions: Any, page: Any, jobs: Any, stop: threading.Event, every_s: float = 30.0) -> None:
    """Until stopped: forget the pages, callers and jobs whose time is over, and their files and memory, also while nobody
    calls."""
    while not stop.wait(every_s):
        try:
            sessions.sweep()
            jobs.sweep()
            page.sweep()
            page.files.sweep(page.everybodys())
            give_back()
        except Exception:
            log.exception("pages that were left could not be forgotten; trying again")


def file_paths(value: Any) -> Iterator[str]:
    """Paths of Gradio's file values, at any depth of an event's inputs or outputs."""
    if isinstance(value, dict):
        if isinstance(path := value.get("path"), str):
            yield path
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from file_paths(item)
