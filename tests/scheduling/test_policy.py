"""Who comes next, without threads and clocks."""

from hypothesis import given
from hypothesis import strategies as st

from cosy_engine.scheduling.policy import next_in_queue


def test_a_client_with_many_requests_does_not_delay_another():
    assert next_in_queue(["a", "a", "a", "b"], ["a"]) == 3
    assert next_in_queue(["a", "a", "b"], []) == 0
    assert next_in_queue(["a", "b"], ["a", "b"]) == 0


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.integers(1, 6))
def test_everyone_is_served_and_shares_differ_by_what_was_asked_only(arrivals, slots):
    """Slots are freed oldest first; in every prefix a client that still waits has had no less than others, within one."""
    waiting, running, served = list(arrivals), [], []
    while waiting:
        if len(running) == slots:
            running.pop(0)
        client = waiting.pop(next_in_queue(waiting, running))
        assert all(running.count(client) <= running.count(other) for other in waiting)
        running.append(client)
        served.append(client)
    assert sorted(served) == sorted(arrivals)
