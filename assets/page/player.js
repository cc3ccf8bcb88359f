// Plays raw int16 from pcm/<job id> while it is being made: fetch -> AudioWorklet, no encoder in between. Browsers without
// worklets (plain http on another machine) get the same samples as scheduled buffers.
(() => {
  // Held before playing starts: FIRST_S of sound, more after a pause; and for as long as the server says that its pace wants
  // (X-Lead-S), which is nothing where sound is made faster than it is played.
  const FIRST_S = 0.08, MOST_S = 4;

  const worklet = `
    class Fifo extends AudioWorkletProcessor {
      constructor({processorOptions: {wanted, most}}) {
        super();
        this.parts = []; this.offset = 0; this.held = 0; this.ended = false; this.playing = false; this.go = false;
        this.wanted = sampleRate * wanted; this.most = sampleRate * most;
        this.first = true; this.played = 0; this.underruns = 0;
        this.port.onmessage = ({data}) => {
          if (data.samples) { this.parts.push(data.samples); this.held += data.samples.length; }
          if (data.go || data.end) this.go = true;
          if (data.end) this.ended = true;
        };
      }
      process(inputs, [[out]]) {
        if (!this.playing && this.go && (this.held >= this.wanted || (this.ended && this.held))) this.playing = true;
        let at = 0;
        while (this.playing && at < out.length && this.parts.length) {
          const part = this.parts[0], n = Math.min(out.length - at, part.length - this.offset);
          out.set(part.subarray(this.offset, this.offset + n), at);
          at += n; this.offset += n; this.held -= n;
          if (this.offset === part.length) { this.parts.shift(); this.offset = 0; }
        }
        if (at && this.first) { this.first = false; this.port.postMessage({first: true}); }
        this.played += at;
        if (at < out.length && this.ended && !this.held) {
          this.port.postMessage({done: true, played: this.played, underruns: this.underruns});
          return false;
        }
        if (this.playing && at < out.length) {         // wait for more before going on, twice as much as before
          this.playing = false; this.underruns++;
          this.wanted = Math.min(this.wanted * 2, this.most);
          this.port.postMessage({underruns: this.underruns, wanted: this.wanted / sampleRate});
        }
        return true;
      }
    }
    registerProcessor("cosy-fifo", Fifo);`;

  // The same contract as the worklet node, with one AudioBufferSourceNode per block, each starting where the last ends.
  class Buffers {
    constructor(context, {wanted}) {
      Object.assign(this, {context, wanted, held: [], heldS: 0, at: 0, played: 0, underruns: 0, ended: false, go: false, last: null});
      this.port = {postMessage: (data) => this.take(data), onmessage: null};
      this.out = context.createGain();
    }
    connect(to) { this.out.connect(to); }
    disconnect() { this.out.disconnect(); }
    take({samples, end, go}) {
      if (samples?.length) { this.held.push(samples); this.heldS += samples.length / this.context.sampleRate; }
      this.ended ||= !!end;
      this.go ||= !!(go || end);
      if (!this.go) return;
      const late = this.at && this.at < this.context.currentTime;
      if (late && this.held.length) { this.underruns++; this.wanted = Math.min(this.wanted * 2, MOST_S); }
      if ((!this.at || late) && this.heldS < this.wanted && !this.ended) return;
      for (const part of this.held) this.schedule(part);
      this.held = []; this.heldS = 0;
      if (this.ended && !this.last) this.finish();
    }
    schedule(part) {
      const {context} = this, buffer = context.createBuffer(1, part.length, context.sampleRate), node = context.createBufferSource();
      buffer.copyToChannel(part, 0);
      node.buffer = buffer; node.connect(this.out);
      const first = !this.at;
      this.at = Math.max(this.at, context.currentTime + 0.02);
      node.start(this.at);
      if (first) setTimeout(() => this.port.onmessage?.({data: {first: true}}), 20);
      this.at += part.length / context.sampleRate;
      this.last = node;
      node.onended = () => { this.played += part.length; if (this.ended && this.last === node) this.finish(); };
    }
    finish() { this.port.onmessage?.({data: {done: true, played: this.played, underruns: this.underruns}}); }
  }

  const root = () => (window.gradio_config?.root || "").replace(/\/$/, "");

  const player = window.cosyPlayer = {
    context: null, node: null, abort: null, clickedAt: 0, wanted: FIRST_S,
    stats: {firstSoundMs: null, samples: 0, underruns: 0, state: "idle"},

    // What this browser can do: "worklet", "buffers", or "none" (then the page's own audio component plays).
    kind() {
      if (!(window.AudioContext && window.ReadableStream)) return "none";
      return window.AudioWorkletNode && window.isSecureContext ? "worklet" : "buffers";
    },

    // Called inside the click, where browsers allow sound to start.
    prepare(rate) {
      if (player.kind() === "none") return;
      if (!player.context || player.context.sampleRate !== rate) {
        player.context = new AudioContext({sampleRate: rate, latencyHint: "interactive"});
        if (player.kind() === "worklet") {
          const url = URL.createObjectURL(new Blob([worklet], {type: "text/javascript"}));
          player.loaded = player.context.audioWorklet.addModule(url);
        }
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
      player.stats.job = id;
      const stats = player.stats, abort = player.abort = new AbortController();
      const answering = fetch(`${root()}/pcm/${id}`, {signal: abort.signal});
      answering.catch(() => {});                       // seen below; the worklet may still be loading
      await player.loaded;
      const options = {wanted: player.wanted, most: MOST_S};
      const node = player.node = player.kind() === "worklet"
        ? new AudioWorkletNode(player.context, "cosy-fifo", {numberOfInputs: 0, outputChannelCount: [1], processorOptions: options})
        : new Buffers(player.context, options);
      node.port.onmessage = ({data}) => {
        if (data.first) {
          stats.firstSoundMs = Math.round(performance.now() - player.clickedAt);
          stats.state = "playing";
          player.stamp();
          document.dispatchEvent(new CustomEvent("cosy-first-sound", {detail: stats}));
        }
        if (data.underruns) stats.underruns = data.underruns;
        if (data.wanted) player.wanted = data.wanted;
        if (data.done) {
          stats.samples = data.played; stats.underruns = data.underruns; stats.state = "done";
          if (!data.underruns) player.wanted = Math.max(FIRST_S, player.wanted / 2);     // a clean run earns a quicker start
          node.disconnect();
          player.stamp();
        }
      };
      node.connect(player.context.destination);
      try {
        const answer = await answering;
        if (!answer.ok) throw new Error(`sound not available (${answer.status})`);
        const reader = answer.body.getReader();
        const lead = stats.leadS = Math.min(Number(answer.headers.get("X-Lead-S")) || 0, MOST_S), go = () => node.port.postMessage({go: true});
        let tail = new Uint8Array(0);
        for (;;) {
          const {done, value} = await reader.read();
          if (done) break;
          const bytes = new Uint8Array(tail.length + value.length);      // borders are arbitrary: keep an odd byte
          bytes.set(tail); bytes.set(value, tail.length);
          const even = bytes.length & ~1;
          const ints = new Int16Array(bytes.slice(0, even).buffer), samples = new Float32Array(ints.length);
          for (let i = 0; i < ints.length; i++) samples[i] = ints[i] / 32768;
          if (!stats.received && samples.length) lead ? setTimeout(go, 1000 * lead) : go();
          stats.received += samples.length;
          node.port.postMessage({samples}, [samples.buffer]);
          tail = bytes.slice(even);
        }
        node.port.postMessage({end: true});
        if (!stats.received) stats.state = "done";
      } catch (error) {
        node.disconnect();
        if (error.name !== "AbortError") { stats.state = "failed"; console.warn(error); }
      }
    },

    // Writes this browser's first sound into the strip of numbers, whichever of the two came first.
    stamp() {
      const cell = document.querySelector("#first-browser"), ms = player.stats.firstSoundMs;
      if (!cell || cell.dataset.job !== player.stats.job) return;
      cell.textContent = ms === null ? "–" : `${ms} ms`;
      const note = document.querySelector("#pauses");
      note.textContent = note.dataset[player.stats.underruns === 1 ? "once" : "often"].replace("{count}", player.stats.underruns);
      note.hidden = !player.stats.underruns;
    },

    stop() {
      player.abort?.abort();
      player.node?.disconnect();
      player.node = player.abort = null;
      if (["waiting", "playing"].includes(player.stats.state)) player.stats.state = "stopped";
    },
  };
})();
