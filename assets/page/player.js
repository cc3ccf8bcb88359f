// Plays raw int16 from pcm/<job id> while it is being made: fetch -> AudioWorklet, no encoder in between.
(() => {
  const worklet = `
    class Fifo extends AudioWorkletProcessor {
      constructor() {
        super();
        this.parts = []; this.offset = 0; this.held = 0; this.ended = false;
        this.playing = false; this.wanted = sampleRate * 0.08; this.first = true; this.played = 0; this.underruns = 0;
        this.port.onmessage = ({data}) => {
          if (data.samples) { this.parts.push(data.samples); this.held += data.samples.length; }
          if (data.end) this.ended = true;
        };
      }
      process(inputs, [[out]]) {
        if (!this.playing && (this.held >= this.wanted || (this.ended && this.held))) this.playing = true;
        let at = 0;
        while (this.playing && at < out.length && this.parts.length) {
          const part = this.parts[0], n = Math.min(out.length - at, part.length - this.offset);
          out.set(part.subarray(this.offset, this.offset + n), at);
          at += n; this.offset += n; this.held -= n;
          if (this.offset === part.length) { this.parts.shift(); this.offset = 0; }
        }
        if (at && this.first) { this.first = false; this.port.postMessage({first: true}); }
        this.played += at;
        if (this.playing && at < out.length) {
          if (this.ended) { this.port.postMessage({done: true, played: this.played, underruns: this.underruns}); return false; }
          this.playing = false; this.underruns++;                   // wait for more before going on, twice as much
          this.wanted = Math.min(this.wanted * 2, sampleRate * 2);
        }
        return true;
      }
    }
    registerProcessor("cosy-fifo", Fifo);`;

  const player = window.cosyPlayer = {
    context: null, node: null, abort: null, clickedAt: 0,
    stats: {firstSoundMs: null, samples: 0, underruns: 0, state: "idle"},

    // Called inside the click, where browsers allow sound to start.
    prepare(rate) {
      if (!window.AudioWorkletNode) return;
      if (!player.context || player.context.sampleRate !== rate) {
        player.context = new AudioContext({sampleRate: rate, latencyHint: "interactive"});
        const url = URL.createObjectURL(new Blob([worklet], {type: "text/javascript"}));
        player.loaded = player.context.audioWorklet.addModule(url);
      }
      player.context.resume();
    },

    click(rate) {
      player.stop();
      player.clickedAt = performance.now();
      player.stats = {firstSoundMs: null, samples: 0, received: 0, underruns: 0, state: "waiting"};
      player.prepare(rate);
    },

    async play(id) {
      if (!id || !player.context) return;
      await player.loaded;
      const stats = player.stats, abort = player.abort = new AbortController();
      const node = player.node = new AudioWorkletNode(player.context, "cosy-fifo", {numberOfInputs: 0, outputChannelCount: [1]});
      node.port.onmessage = ({data}) => {
        if (data.first) {
          stats.firstSoundMs = Math.round(performance.now() - player.clickedAt);
          stats.state = "playing";
          document.dispatchEvent(new CustomEvent("cosy-first-sound", {detail: stats}));
        }
        if (data.done) { stats.samples = data.played; stats.underruns = data.underruns; stats.state = "done"; node.disconnect(); }
      };
      node.connect(player.context.destination);
      try {
        const answer = await fetch(`pcm/${id}`, {signal: abort.signal});
        if (!answer.ok) throw new Error(`sound not available (${answer.status})`);
        const reader = answer.body.getReader();
        let tail = new Uint8Array(0);
        for (;;) {
          const {done, value} = await reader.read();
          if (done) break;
          const bytes = new Uint8Array(tail.length + value.length);      // borders are arbitrary: keep an odd byte
          bytes.set(tail); bytes.set(value, tail.length);
          const even = bytes.length & ~1;
          const ints = new Int16Array(bytes.slice(0, even).buffer), samples = new Float32Array(ints.length);
          for (let i = 0; i < ints.length; i++) samples[i] = ints[i] / 32768;
          stats.received += samples.length;
          node.port.postMessage({samples}, [samples.buffer]);
          tail = bytes.slice(even);
        }
        node.port.postMessage({end: true});
      } catch (error) {
        node.disconnect();
        if (error.name !== "AbortError") { stats.state = "failed"; console.warn(error); }
      }
    },

    stop() {
      player.abort?.abort();
      player.node?.disconnect();
      player.node = player.abort = null;
      if (["waiting", "playing"].includes(player.stats.state)) player.stats.state = "stopped";
    },
  };

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const button = document.querySelector("#stop");
    if (button && !button.disabled) button.click();
  });
})();
