"""The same request in several variants (tier, precision, streaming), run in turns and set side by side."""

from cosy_engine.compare.likeness import Likeness
from cosy_engine.compare.outcome import Outcome, Run, Variant
from cosy_engine.compare.record import as_csv, as_data
from cosy_engine.compare.run import Comparison, Step
from cosy_engine.compare.subjects import EngineSubject, RandomSubject, Subject

__all__ = [
    "Comparison",
    "EngineSubject",
    "Likeness",
    "Outcome",
    "RandomSubject",
    "Run",
    "Step",
    "Subject",
    "Variant",
    "as_csv",
    "as_data",
]
