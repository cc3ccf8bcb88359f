// The Compare tab: blind listening, and choices that this machine cannot run.
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const choose = (count) => crypto.getRandomValues(new Uint32Array(1))[0] % count;

  // Two results under false names. Both sounds play at once and one is silent, so that a switch keeps the place.
  class Blind {
    constructor(box) {
      this.box = box;
      this.sounds = JSON.parse(box.dataset.sounds);
      this.words = JSON.parse(box.dataset.words);
      this.count = {};
      this.draw();
    }
    draw() {
      this.pause();
      const first = choose(this.sounds.length), second = (first + 1 + choose(this.sounds.length - 1)) % this.sounds.length;
      this.pair = {A: this.sounds[first], B: this.sounds[second]};
      this.audio = Object.fromEntries(Object.entries(this.pair).map(([name, {url}]) => [name, new Audio(url)]));
      this.audio.A.onended = this.audio.B.onended = () => { if (this.audio.A.ended && this.audio.B.ended) this.pause(); };
      this.hear("A");
      this.say("");
    }
    hear(name) {
      this.now = name;
      for (const other of ["A", "B"]) {
        this.audio[other].muted = other !== name;
        $(`[data-blind=${other}]`, this.box).setAttribute("aria-pressed", String(other === name));
      }
    }
    toggle() {
      if (this.playing) return this.pause();
      const ended = this.audio.A.ended || this.audio.B.ended, at = ended ? 0 : this.audio[this.now].currentTime;
      for (const sound of Object.values(this.audio)) {
        sound.currentTime = Math.min(at, sound.duration || at);
        sound.play().catch(() => this.pause());
      }
      this.label(true);
    }
    pause() {
      for (const sound of Object.values(this.audio || {})) sound.pause();
      this.label(false);
    }
    label(playing) {
      this.playing = playing;
      $("[data-blind=play]", this.box).textContent = playing ? this.words.pause : this.words.play;
    }
    answer(what) {
      const name = what === "same" ? this.words.same : this.pair[what].name;
      this.count[name] = (this.count[name] || 0) + 1;
      const {A, B} = this.pair;
      const score = Object.entries(this.count).map(([key, times]) => `${key} × ${times}`).join(", ");
      this.say(`${this.words.is.replace("{a}", A.name).replace("{b}", B.name)} ${this.words.score.replace("{score}", score)}`);
    }
    say(words) { $(".answer", this.box).textContent = words; }
  }

  const boxes = new WeakMap();
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-blind]"), box = button?.closest(".blind");
    if (!box) return;
    if (!boxes.has(box)) boxes.set(box, new Blind(box));
    const blind = boxes.get(box), what = button.dataset.blind;
    if (what === "play") blind.toggle();
    else if (what === "new") blind.draw();
    else if (what === "A" || what === "B") blind.hear(what);
    else blind.answer(what.replace("prefer-", ""));
  });

  // What is only to be copied: commands, the doctor's report.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy], [data-from]");
    if (!button) return;
    const text = button.dataset.copy || $(button.dataset.from)?.textContent || "";
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // plain http on another machine has no clipboard: an old way that works there
      const box = document.createElement("textarea");
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    const old = button.textContent;
    button.textContent = button.dataset.done;
    setTimeout(() => { button.textContent = old; }, 1500);
  });

  const reasons = window.cosyCannot || {}, zh = navigator.language.toLowerCase().startsWith("zh") ? 1 : 0;
  const grey = () => {
    for (const label of document.querySelectorAll("#cmp-whole label:not(.cannot), #cmp-streamed label:not(.cannot)")) {
      const input = $("input[type=checkbox]", label);
      const why = input && label.innerText.trim().split(" ").map((part) => reasons[part]).find(Boolean);
      if (!why) continue;
      input.disabled = true;
      label.classList.add("cannot");
      label.title = why[zh];
    }
  };
  new MutationObserver(grey).observe(document.documentElement, {childList: true, subtree: true});
})();
