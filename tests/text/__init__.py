"""The text room. Hypothesis draws the same examples every time, and the suite leaves no database behind."""

from hypothesis import settings

steady = settings(max_examples=250, derandomize=True, deadline=None, database=None)
