"""Names and passwords of `--auth`, and the same door for the routes that Gradio's own login does not stand before."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import Depends, FastAPI, HTTPException
from fastapi import Request as HttpRequest

from cosy_engine.errors import SettingInvalid
from cosy_ui.guests import Guests, client_of
from cosy_ui.words import language, say


class Login:
    """Answers whether a name and password belong together; holds digests only. Call it, as Gradio does."""

    def __init__(self, pairs: dict[str, str]):
        self._digests = {name: _digest(password) for name, password in pairs.items()}

    def __call__(self, name: str, password: str) -> bool:
        """Takes the same time for an unknown name and at whatever character a password differs."""
        known = self._digests.get(name)
        same = hmac.compare_digest(_digest(password), known or bytes(32))
        return same and known is not None

    @classmethod
    def read(cls, given: str) -> Login:
        """given: NAME:PASSWORD, or a file with one such pair a line (# begins a comment line).

        Raises: SettingInvalid: neither; the message repeats nothing of what was given.
        """
        file = Path(given)
        try:
            lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else [given]
        except (OSError, ValueError) as error:
            raise SettingInvalid(
                f"the file of --auth cannot be read ({type(error).__name__}): make it UTF-8 text"
            ) from None
        pairs = dict(line.split(":", 1) for line in lines if ":" in line and not line.lstrip().startswith("#"))
        pairs = {name.strip(): password for name, password in pairs.items()}
        if not pairs or not all(name and password for name, password in pairs.items()):
            raise SettingInvalid("--auth takes NAME:PASSWORD, or a file with one such pair a line")
        return cls(pairs)


def guarded(app: FastAPI, guests: Guests, path: str, answer: Callable, methods: tuple[str, ...] = ("GET",)) -> None:
    """Put a route in front of Gradio's own, which would answer every path, and behind its login, if there is one.

    Programs log in with HTTP Basic, or send NAME:PASSWORD as a bearer key.
    """

    def let_in(http: HttpRequest) -> None:
        lang = language(http)
        if app.auth is not None:
            http.state.username = user_of(app, guests, http)
            if http.state.username is None:
                raise HTTPException(401, say("login_first", lang), {"WWW-Authenticate": 'Basic realm="cosy"'})
        if wait := guests.take(client_of(http), "calls"):
            raise HTTPException(429, say("calls_many", lang, seconds=wait), {"Retry-After": str(wait)})

    app.add_api_route(
        path,
        answer,
        methods=list(methods),
        include_in_schema=False,
        response_model=None,
        dependencies=[Depends(let_in)],
    )
    app.router.routes.insert(0, app.router.routes.pop())


def user_of(app: Any, guests: Guests, http: HttpRequest) -> str | None:
    """The name of who asks: by the cookie of Gradio's login, or by a header; None for a stranger.

    Raises: HTTPException: too many wrong passwords.
    """
    for kind in ("access-token", "access-token-unsecure"):
        if name := app.tokens.get(http.cookies.get(f"{kind}-{app.cookie_id}")):
            return name
    name, _, password = _header_pair(http.headers.get("authorization", "")).partition(":")
    if not password:
        return None
    client = client_of(http)
    if wait := guests.wait_s(client, "logins"):  # before the password is looked at, or it could be found by asking on
        raise HTTPException(429, say("calls_many", language(http), seconds=wait), {"Retry-After": str(wait)})
    if app.auth(name, password):
        return name
    guests.take(client, "logins")
    return None


def _header_pair(header: str) -> str:
    kind, _, value = header.partition(" ")
    if kind.lower() == "bearer":
        return value.strip()
    try:
        return base64.b64decode(value, validate=True).decode() if kind.lower() == "basic" else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode("utf-8", "replace")).digest()
