"""Who comes next and how long the others wait, without threads and clocks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosy_engine.scheduling.policy import (
    Piece,
    Rate,
    Waiting,
    launches,
    line,
    most_together,
    near,
    ranked,
    starts_s,
    together,
)


def next_piece(pieces, urgent_s: float) -> int:
    return ranked(pieces, urgent_s)[0]


def order(clients: str, running: str = "", served: dict | None = None) -> str:
    return "".join(clients[i] for i in line([Waiting(c) for c in clients], running, served or {}, 0.0))


def test_a_client_with_many_requests_does_not_delay_another():
    assert order("aaab", running="a") == "baaa"
    assert order("aabbc") == "abcab"
    assert order("ab", running="ab") == "ab"


def test_with_one_slot_clients_take_turns():
    """Nothing runs when the slot is free, so only who was served last tells whose turn it is."""
    assert order("aaab", served={"a": 5})[0] == "b"
    assert order("ab", served={"a": 5, "b": 6})[0] == "a"


def test_a_listener_about_to_run_dry_goes_before_all_and_one_with_audio_in_hand_does_not():
    waiting = [Waiting("new"), Waiting("book", dry_s=10.3)]
    served = {"book": 7}
    assert line(waiting, [], served, urgent_s=10.5)[0] == 1
    assert line(waiting, [], served, urgent_s=8.0)[0] == 0


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=40), st.integers(1, 6))
def test_everyone_is_served_and_shares_differ_by_what_was_asked_only(arrivals, slots):
    """Slots are freed oldest first; at every admission a client that still waits has no fewer slots than it could have, and
    has not been passed over twice by the same other."""
    waiting, running, served, history = list(arrivals), [], {}, []
    while waiting:
        if len(running) == slots:
            running.pop(0)
        client = waiting.pop(line([Waiting(c) for c in waiting], running, served, 0.0)[0])
        assert all(running.count(client) <= running.count(other) for other in waiting)
        running.append(client)
        served[client] = len(history)
        history.append(client)
    assert sorted(history) == sorted(arrivals)
    if slots == 1:  # strict turns: between two slots of one client, everyone who still waits has had one
        for i, client in enumerate(history):
            later = history[i + 1 :]
            if client in later:
                assert set(later) <= set(later[: later.index(client) + 1])


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=6))
def test_the_line_names_everyone_once_and_keeps_each_clients_order(clients, running):
    found = line([Waiting(c) for c in clients], running, {"a": 3, "b": 1}, 0.0)
    assert sorted(found) == list(range(len(clients)))
    for client in "abc":
        own = [i for i in found if clients[i] == client]
        assert own == sorted(own)


def test_the_piece_that_is_due_first_is_done_first():
    first_sound, buffered, word, page = Piece(99.0), Piece(103.0, playing=True), Piece(100.4), Piece(112.0)
    pieces = [page, buffered, word, first_sound]
    done = []
    while pieces:
        done.append(pieces.pop(next_piece(pieces, urgent_s=100.1)))
    assert done == [first_sound, word, buffered, page]


def test_a_listener_about_to_run_dry_goes_before_a_first_sound():
    """A glitch is worse than a later start; whoever has seconds in hand can wait."""
    new = Piece(90.0)
    assert next_piece([new, Piece(100.05, playing=True)], urgent_s=100.1) == 1
    assert next_piece([new, Piece(103.0, playing=True)], urgent_s=100.1) == 0
    assert next_piece([Piece(100.05), new], urgent_s=100.1) == 1  # not playing: no glitch


@given(st.lists(st.floats(0.4, 20.0), min_size=1, max_size=8))
def test_no_piece_waits_for_ever_behind_shorter_ones(works):
    """A page's render waits while words keep coming, but not longer than its own length."""
    page = Piece(20.0)
    now = 0.0
    for i in range(200):
        word = Piece(now + works[i % len(works)])
        if next_piece([page, word], urgent_s=now) == 0:
            break
        now += 0.2
    assert now <= 20.2


def test_decoding_keeps_its_share_beside_long_pieces():
    assert launches(0.3, 0.003) == 4 and launches(0.02, 0.002) == 2
    assert launches(0.001, 0.002) == launches(0.0, 0.0) == 1
    assert launches(0.3, 0.003, sounds=1, tokens=5) == 0
    assert launches(0.3, 0.003, tokens=7) == 7 and launches(0.3, 0.003, tokens=2) == 4


def test_prefills_go_first_so_that_requests_are_decoded_together_but_not_before_a_glitch():
    dry, sound, prefill = Piece(10.0, playing=True), Piece(1.0, first=True), Piece(5.0, prefill=True)
    assert ranked([sound, prefill, dry], urgent_s=10.1) == [2, 1, 0]
    assert ranked([sound, prefill, dry], urgent_s=9.0) == [1, 0, 2]


def test_renderings_are_made_together_in_the_largest_number_there_is():
    def groups(size):
        return (2, 4) if size <= 200 else (2,)

    assert together([100], groups, 8) == 1
    assert together([100, 200, 150], groups, 8) == 2
    assert together([100, 200, 150, 200, 100], groups, 8) == 4
    assert together([100, 200, 150, 200, 100], groups, 3) == 2
    assert together([100, 300, 100, 100], groups, 8) == 2
    assert together([100, None, 100], groups, 8) == together([None, 100], groups, 8) == 1


def test_few_who_listen_make_small_groups_and_first_sounds_any():
    assert most_together(False, 3) == most_together(False, 16) == 2 and most_together(False, 32) == 4
    assert most_together(True, 32) == 32


def test_only_renderings_of_about_one_size_are_padded_to_each_other():
    assert near(300, 400) and near(400, 300) and near(200, 200)
    assert not near(200, 400) and not near(None, 200) and not near(200, None)


def test_waits_follow_from_the_audio_still_to_be_made():
    """One slot, 2 s of audio a second: 10 s left, then a request of 4 s."""
    assert starts_s([10.0], [4.0, 6.0], 1, 2.0) == [5.0, 7.0]
    assert starts_s([], [4.0, 6.0], 2, 2.0) == [0.0, 0.0]
    # Two share the device: the short one leaves after 2 x 2 / 2 s, the other has 8 s left.
    assert starts_s([2.0, 10.0], [1.0], 2, 2.0) == [2.0]


@given(st.lists(st.floats(0, 30), max_size=4), st.lists(st.floats(0, 30), min_size=1, max_size=20), st.integers(1, 4))
def test_expected_waits_grow_along_the_line_and_never_exceed_all_the_work(running, waiting, slots):
    found = starts_s(running, waiting, slots, 3.0)
    assert found == sorted(found)
    assert found[-1] <= (sum(running) + sum(waiting[:-1])) / 3.0 + 1e-6


def test_the_rate_follows_what_was_measured_and_forgets():
    rate = Rate(half_life_s=10.0)
    assert rate.per_s is None
    rate.add(0.0, 1.0)
    assert rate.per_s is None
    rate.add(20.0, 9.0)
    assert rate.per_s == pytest.approx(2.0, rel=0.1)
    for _ in range(100):
        rate.add(5.0, 1.0)
    assert math.isclose(rate.per_s, 5.0, rel_tol=0.01)
