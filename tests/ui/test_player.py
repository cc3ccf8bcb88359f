"""What the browser renders, sample by sample: a known signal through the player's own path, caught by a second worklet."""

import numpy as np
import pytest

from tests.ui.steps import fill, generate, metric, player

pytestmark = pytest.mark.browser

# fetch answers with `pieces` (lengths in bytes) of a ramp, waiting `pause` ms between them; a recorder hears what is played.
RIG = """async ({pieces, pause, rate, lead = 0}) => {
  const bytes = new Uint8Array(pieces.reduce((a, b) => a + b)), ints = new Int16Array(bytes.length / 2);
  for (let i = 0; i < ints.length; i++) ints[i] = 1 + i % 30000;
  bytes.set(new Uint8Array(ints.buffer));
  const real = window.fetch;
  window.fetch = (url, options) => !String(url).includes("/pcm/") ? real(url, options) : Promise.resolve(new Response(new ReadableStream({
    async start(stream) {
      let at = 0;
      for (const size of pieces) {
        stream.enqueue(bytes.slice(at, at += size));
        await new Promise(done => setTimeout(done, pause));
      }
      stream.close();
    }}), {headers: {"X-Lead-S": String(lead)}}));
  const player = window.cosyPlayer;
  player.click(rate);
  await player.loaded;
  const code = `registerProcessor("recorder", class extends AudioWorkletProcessor {
    process([[x]]) { if (x) this.port.postMessage(x.slice()); return true; } });`;
  await player.context.audioWorklet.addModule(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
  const recorder = new AudioWorkletNode(player.context, "recorder"), heard = [];
  recorder.port.onmessage = ({data}) => heard.push(data);
  recorder.connect(player.context.destination);
  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (to, ...rest) { connect.call(this, recorder); return connect.call(this, to, ...rest); };
  const before = player.wanted, playing = player.play("test");
  await playing;
  for (let i = 0; i < 400 && player.stats.state !== "done"; i++) await new Promise(done => setTimeout(done, 50));
  await new Promise(done => setTimeout(done, 200));
  AudioNode.prototype.connect = connect;
  window.fetch = real;
  const out = new Float32Array(heard.reduce((a, b) => a + b.length, 0));
  let at = 0;
  for (const part of heard) { out.set(part, at); at += part.length; }
  return {stats: player.stats, before, wanted: player.wanted, heard: Array.from(out, x => Math.round(x * 32768))};
}"""


def ramp(samples):
    return 1 + np.arange(samples) % 30000


def test_pieces_of_any_size_are_rendered_without_a_gap_or_a_lost_sample(open_page):
    page = open_page()
    page.locator("#status").click()  # a gesture, so that sound may start
    pieces = [4801, 1, 3, 9600, 7777, 2, 12345, 9999, 8192, 6000]
    pieces[-1] += sum(pieces) % 2
    found = page.evaluate(RIG, {"pieces": pieces, "pause": 5, "rate": 24000})
    heard = np.array(found["heard"])
    played = heard[np.flatnonzero(heard)[0] : np.flatnonzero(heard)[-1] + 1]
    assert found["stats"]["underruns"] == 0 and found["stats"]["samples"] == sum(pieces) // 2
    np.testing.assert_array_equal(played, ramp(sum(pieces) // 2))


def test_sound_slower_than_real_time_pauses_goes_on_and_starts_later_next_time(open_page):
    page = open_page()
    page.locator("#status").click()
    found = page.evaluate(RIG, {"pieces": [9600] * 8, "pause": 350, "rate": 24000})  # 0.2 s of sound every 0.35 s
    heard = np.array(found["heard"])
    assert found["stats"]["state"] == "done" and 1 <= found["stats"]["underruns"] <= 6
    assert found["stats"]["samples"] == 8 * 4800
    np.testing.assert_array_equal(heard[heard != 0], ramp(8 * 4800))  # every sample once and in order, silence between
    assert found["wanted"] > found["before"]


@pytest.mark.parametrize("kind", ["worklet", "buffers"])
def test_a_pace_that_the_server_knows_delays_the_start_and_spares_the_pauses(open_page, kind):
    page = open_page()
    page.locator("#status").click()
    page.evaluate(f"window.cosyPlayer.kind = () => '{kind}'")
    slow = {"pieces": [9600] * 8, "pause": 350, "rate": 24000, "lead": 1.4}  # 8 x (0.35 - 0.2) s and a little
    found = page.evaluate(RIG, slow)
    heard = np.array(found["heard"]) // (
        2 if kind == "buffers" else 1
    )  # a buffer passes the recorder before its gain and after
    assert found["stats"]["underruns"] == 0 and found["stats"]["firstSoundMs"] >= 1400
    np.testing.assert_array_equal(heard[heard != 0], ramp(8 * 4800))
    quick = page.evaluate(
        RIG, {"pieces": [9600], "pause": 50, "rate": 24000, "lead": 3}
    )  # all there is: nothing to wait for
    assert quick["stats"]["firstSoundMs"] < 1000


def test_pauses_are_told_in_words_under_the_numbers(open_page, clip):
    page = open_page()
    fill(page, clip)
    generate(page)
    player(page)
    assert page.locator("#pauses").is_hidden()
    for count, words in ((1, "paused once"), (3, "paused 3 times")):
        page.evaluate(f"window.cosyPlayer.stats.underruns = {count}; window.cosyPlayer.stamp()")
        assert words in page.locator("#pauses").inner_text() and page.locator("#pauses").is_visible()
    told = page.locator("#metrics").inner_text()
    slower = "slower than real time" in told
    assert (
        ("more slowly" in told) is slower
        and ("arrived late" in told) is not slower
        and "3" not in metric(page, "first_browser")[-2:]
    )
