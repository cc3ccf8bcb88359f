"""What a caller can catch. Every message ends in what to do about it.

`code` is stable ascii: the page words it per language, the API returns it.
"""

from __future__ import annotations

import os

# How a person gets a release; the script knows where the packages are, and Windows has no script.
FETCH = ("python -m cosy_engine" if os.name == "nt" else "./run.sh") + " fetch"


class CosyError(Exception):
    """Base of all errors that this package raises on purpose."""

    code = "error"


class UserError(CosyError):
    """Something the caller gave cannot be used; nothing was computed."""

    code = "bad_input"


class TextEmpty(UserError):
    code = "text_empty"


class TextUnspeakable(UserError):
    code = "text_unspeakable"


class TextTooLong(UserError):
    code = "text_too_long"


class LanguageUnknown(UserError):
    """The model was not taught the language of a text."""

    code = "language_unknown"


class InputMissing(UserError):
    """A mode needs an input that was not given; `field` names it."""

    code = "input_missing"

    def __init__(self, message: str, field: str):
        super().__init__(message)
        self.field = field


class SettingInvalid(UserError):
    """An option has a value outside its range, or two options exclude each other."""

    code = "setting_invalid"


class ReferenceUnreadable(UserError):
    code = "reference_unreadable"


class ReferenceTooShort(UserError):
    code = "reference_too_short"


class ReferenceTooLong(UserError):
    code = "reference_too_long"


class ReferenceSilent(UserError):
    code = "reference_silent"


class ModelFilesError(CosyError):
    """A model folder is missing, incomplete or wrong; names the file, what was expected and the mending command."""

    code = "model_files"


class ModeUnavailable(CosyError):
    """A precision, tier or mode that cannot run here; the message says why."""

    code = "mode_unavailable"


class GenerationFailed(CosyError):
    """The model produced nothing usable for a segment, also after the retry."""

    code = "generation_failed"


class NotFinite(GenerationFailed):
    """A model gave NaN or infinity; in half precision another try in fp32 helps."""

    code = "not_finite"


class MemoryShort(CosyError):
    """The device has no room for this request, also with no other beside it."""

    code = "memory_short"


class Cancelled(CosyError):
    """The request was stopped by its owner."""

    code = "cancelled"


class Busy(CosyError):
    """The queue is full or the engine is closing."""

    code = "busy"
