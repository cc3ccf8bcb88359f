"""Mel to waveform: pitch, excitation, decoder, and their streaming."""

from cosy_engine.vocoder.hift import Hift, build_vocoder, stretch
from cosy_engine.vocoder.stream import OverlapState, WindowState

__all__ = ["Hift", "OverlapState", "WindowState", "build_vocoder", "stretch"]
