"""Speech tokens to mel: front network, velocity estimator, ODE solver, and their streaming."""

from cosy_engine.flow.model import Flow, build_flow
from cosy_engine.flow.stream import FlowState

__all__ = ["Flow", "FlowState", "build_flow"]
