"""How the program logs: lines for people, or one JSON object a line. Nothing that is logged holds a text, a name or sound."""

from __future__ import annotations

import json
import logging
import sys
import time

QUIET = ("httpx", "httpcore", "asyncio", "multipart", "python_multipart")  # they log addresses and bodies' parts


class JsonLines(logging.Formatter):
    """time (UTC), level, logger, message, what `extra={"fields": {...}}` holds, and where an error came from."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class Lines(logging.Formatter):
    """The same for people: fields follow the message."""

    def __init__(self) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={value}" for name, value in getattr(record, "fields", {}).items())
        return f"{super().formatMessage(record)} {fields}".rstrip()


def set_up_logs(verbose: bool, as_json: bool) -> None:
    """For the whole program, to standard error. verbose, or as_json: one line for each request, too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Lines())
    logging.basicConfig(level=logging.INFO if verbose or as_json else logging.WARNING, handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
