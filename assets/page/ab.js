// Two sounds under the names A and B: both play at once and one is silent, so that a switch keeps the place. The Compare tab
// draws its two by chance; of the session's takes one chooses two, and may hide which is which.
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const chance = (count) => crypto.getRandomValues(new Uint32Array(1))[0] % count;
  const SIDES = ["A", "B"];

  class AB {
    constructor(box) {
      this.count = {};
      this.answered = "";
      this.blind = !$("[data-pick]", box);
      this.attach(box);
    }

    // The server has drawn the box anew; the two go on while they are still kept.
    attach(box) {
      this.box = box;
      this.raw = box.dataset.sounds;
      this.sounds = JSON.parse(box.dataset.sounds);
      this.words = JSON.parse(box.dataset.words);
      const there = (sound) => sound && this.sounds.some(({url}) => url === sound.url);
      if (!SIDES.every((side) => there(this.pair?.[side])) || (!this.chosen && !this.playing && !this.blind)) this.draw();
      this.show();
    }

    // chosen: what the user has picked; else the two newest, or any two.
    draw() {
      const {sounds} = this;
      let first = sounds[0], second = sounds[1];
      if (this.chosen) [first, second] = SIDES.map((side) => sounds.find(({url}) => url === this.chosen[side]) || first);
      else if (!$("[data-pick]", this.box)) {
        const at = chance(sounds.length);
        [first, second] = [sounds[at], sounds[(at + 1 + chance(sounds.length - 1)) % sounds.length]];
      }
      if (this.blind && chance(2)) [first, second] = [second, first];
      this.take(first, second);
    }
    take(first, second) {
      this.pause();
      this.pair = {A: first, B: second};
      this.audio = Object.fromEntries(SIDES.map((side) => [side, new Audio(this.pair[side].url)]));
      for (const audio of Object.values(this.audio)) {
        audio.onended = () => { if (SIDES.every((side) => this.audio[side].ended)) this.pause(); };
        audio.ontimeupdate = audio.onloadedmetadata = () => this.clock();
      }
      this.answered = "";
      this.hear("A");
    }

    hear(side) {
      this.now = side;
      for (const other of SIDES) this.audio[other].muted = other !== side;
      this.show();
    }
    toggle() {
      if (this.playing) return this.pause();
      const sounds = Object.values(this.audio), at = this.audio[this.now].ended ? 0 : this.audio[this.now].currentTime;
      document.dispatchEvent(new CustomEvent("cosy-sound", {detail: this}));
      for (const sound of sounds) {
        sound.currentTime = Math.min(at, sound.duration || at);
        sound.play().catch(() => this.pause());
      }
      this.playing = true;
      this.show();
    }
    pause() {
      for (const sound of Object.values(this.audio || {})) sound.pause();
      this.playing = false;
      if (this.audio) this.show();
    }
    seek(share) {
      const at = share * this.longest();
      for (const sound of Object.values(this.audio)) sound.currentTime = Math.min(at, sound.duration || at);
    }
    longest() { return Math.max(...SIDES.map((side) => this.audio[side].duration || 0)); }

    pick(side, url) {
      this.chosen = Object.fromEntries(SIDES.map((one) => [one, this.pair[one].url]));
      const other = side === "A" ? "B" : "A";
      if (this.chosen[other] === url) this.chosen[other] = this.chosen[side];      // the same twice: they change places
      this.chosen[side] = url;
      this.draw();
    }
    hide(blind) {
      this.chosen ||= Object.fromEntries(SIDES.map((side) => [side, this.pair[side].url]));
      this.blind = blind;
      this.draw();
    }
    answer(what) {
      const name = what === "same" ? this.words.same : this.pair[what].name, {A, B} = this.pair;
      this.count[name] = (this.count[name] || 0) + 1;
      const score = Object.entries(this.count).map(([key, times]) => `${key} × ${times}`).join(", ");
      this.answered = `${this.words.is.replace("{a}", A.name).replace("{b}", B.name)} ${this.words.score.replace("{score}", score)}`;
      this.show();
    }

    show() {
      const {box} = this;
      for (const side of SIDES) {
        $(`[data-ab=${side}]`, box).setAttribute("aria-pressed", String(side === this.now));
        const select = $(`[data-pick=${side}]`, box);
        if (!select) continue;
        select.value = this.blind && !this.answered ? "" : this.pair[side].url;
        select.disabled = this.blind;
      }
      $("[data-ab=play]", box).textContent = this.playing ? this.words.pause : this.words.play;
      $(".answer", box).textContent = this.answered;
      const answers = $(".answers", box), hidden = $("[data-ab=hide]", box);
      if (answers) answers.hidden = !this.blind;
      if (hidden) hidden.checked = this.blind;
      this.clock();
    }
    clock() {
      const range = $("[data-ab=seek]", this.box), longest = this.longest(), {currentTime: at} = this.audio[this.now];
      if (!range) return;
      if (range !== document.activeElement || this.playing) range.value = longest ? at / longest : 0;
      $("output", this.box).textContent = `${at.toFixed(1)} / ${longest.toFixed(1)} s`;
    }
  }

  // One for each place in the page: the server draws their boxes anew.
  const places = new Map();
  const of = (box) => {
    const found = places.get(box.dataset.place);
    if (!found || (box.dataset.place === "compare" && found.raw !== box.dataset.sounds)) {
      found?.pause();
      places.set(box.dataset.place, new AB(box));
    } else if (found.box !== box || found.raw !== box.dataset.sounds) found.attach(box);
    return places.get(box.dataset.place);
  };
  const look = () => {
    for (const box of document.querySelectorAll(".ab[data-sounds]")) of(box);
    for (const [place, ab] of places) if (!ab.box.isConnected) { ab.pause(); places.delete(place); }
  };
  let due = 0;
  new MutationObserver(() => { due ||= requestAnimationFrame(() => { due = 0; look(); }); }).observe(document.documentElement, {childList: true, subtree: true});

  const target = (event, selector) => event.target.closest?.(selector);
  document.addEventListener("click", (event) => {
    const button = target(event, "button[data-ab]");
    if (!button) return;
    const ab = of(button.closest(".ab")), what = button.dataset.ab;
    if (what === "play") ab.toggle();
    else if (what === "new") ab.draw();
    else if (SIDES.includes(what)) ab.hear(what);
    else ab.answer(what.replace("prefer-", ""));
  });
  document.addEventListener("input", (event) => {
    const range = target(event, "[data-ab=seek]");
    if (range) of(range.closest(".ab")).seek(Number(range.value));
  });
  document.addEventListener("change", (event) => {
    const select = target(event, "[data-pick]"), box = target(event, "[data-ab=hide]");
    if (select) of(select.closest(".ab")).pick(select.dataset.pick, select.value);
    if (box) of(box.closest(".ab")).hide(box.checked);
  });

  // One sound at a time: whoever starts says so.
  document.addEventListener("cosy-sound", ({detail}) => { for (const ab of places.values()) if (ab !== detail && ab.playing) ab.pause(); });
})();
