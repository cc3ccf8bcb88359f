// What the server-drawn pieces of the page do: the movable part of the clip, marks, redo, copy, voices, keys.
(() => {
  // Links in server-drawn pieces are relative to the page's root, whatever prefix a proxy has put before it.
  const base = document.createElement("base");
  base.href = `${(window.gradio_config?.root || location.pathname).replace(/\/$/, "")}/`;
  document.head.prepend(base);

  const $ = (selector, from = document) => from.querySelector(selector);

  // Hidden text boxes carry messages to the server; a running number makes equal messages differ.
  let count = 0;
  function send(id, value) {
    const box = $(`#${id} textarea, #${id} input`);
    if (!box) return;
    box.value = value;
    box.dispatchEvent(new Event("input", {bubbles: true}));
  }
  const act = (id, ...words) => send(id, [...words, ++count].join(":"));

  // The part of the clip that is used

  const clipOf = (node) => node.closest(".clip");
  const read = (clip) => ["seconds", "shortest", "longest", "start", "end"].map((key) => Number(clip.dataset[key]));

  function place(clip, start, end) {
    const [seconds] = read(clip), light = $(".clip-window", clip);
    clip.dataset.start = start.toFixed(3); clip.dataset.end = end.toFixed(3);
    light.style.left = `${100 * start / seconds}%`; light.style.width = `${100 * (end - start) / seconds}%`;
    $("output", clip).textContent = `${start.toFixed(1)}–${end.toFixed(1)} s`;
    for (const [side, at] of [["left", start], ["right", end]]) {
      const handle = $(`.handle.${side}`, clip);
      handle?.setAttribute("aria-valuenow", at.toFixed(2));
      handle?.setAttribute("aria-valuetext", `${at.toFixed(1)} s`);
    }
  }

  // side: "left", "right" or "both"; by: seconds. The other end gives way where the part would get too long or too short.
  function move(clip, side, by, from) {
    const [seconds, shortest, longest] = read(clip);
    let [start, end] = from;
    if (side === "both") {
      const length = end - start;
      start = Math.min(Math.max(0, start + by), seconds - length); end = start + length;
    } else if (side === "left") {
      start = Math.min(Math.max(0, start + by), seconds - shortest);
      end = Math.min(Math.max(end, start + shortest), start + longest);
    } else {
      end = Math.max(Math.min(seconds, end + by), shortest);
      start = Math.max(Math.min(start, end - shortest), end - longest);
    }
    place(clip, start, end);
  }

  let tell = 0;
  function moved(clip) {
    clearTimeout(tell);
    tell = setTimeout(() => send("window", `${clip.dataset.start},${clip.dataset.end}@${clip.dataset.tag}`), 150);
  }

  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest) return;
    const wave = event.target.closest(".clip-wave"), light = wave && $(".clip-window:not(.fixed)", wave);
    if (!light || event.button) return;
    const clip = clipOf(wave), side = event.target.dataset.handle || "both", x = event.clientX;
    const [seconds] = read(clip), {left, width} = wave.getBoundingClientRect();
    if (!event.target.closest(".clip-window")) {        // elsewhere in the clip: the part comes there, and can be dragged on
      const [, , , start, end] = read(clip);
      move(clip, "both", (x - left) * seconds / width - (start + end) / 2, [start, end]);
    }
    const [, , , ...from] = read(clip);
    event.preventDefault();
    event.target.focus?.({preventScroll: true});
    const drag = (e) => move(clip, side, (e.clientX - x) * seconds / width, from);
    const end = () => {
      removeEventListener("pointermove", drag); removeEventListener("pointerup", end); removeEventListener("pointercancel", end);
      moved(clip);
    };
    addEventListener("pointermove", drag); addEventListener("pointerup", end); addEventListener("pointercancel", end);
  });

  let sample = null;
  function playPart(clip) {
    const [, , , start, end] = read(clip);
    sample?.pause();
    sample = new Audio(`${(window.gradio_config?.root || "").replace(/\/$/, "")}/${clip.dataset.url}#t=${start},${end}`);
    sample.play().catch(() => {});
    sample.ontimeupdate = () => { if (sample.currentTime >= end) sample.pause(); };
  }

  // Files. Any may be tried: the server says in words why one cannot be used, where Gradio's own check would refuse an mp4 or
  // webm recording by its media type.

  const AUDIO = ":is(#reference, #source)", zh = navigator.language.toLowerCase().startsWith("zh") ? 1 : 0;

  function fileNote(box, words) {
    box.parentNode.querySelector(".file-note")?.remove();
    if (!words) return;
    const note = document.createElement("div"), line = document.createElement("p");
    note.className = "html-container file-note";
    line.className = "note bad"; line.setAttribute("role", "alert"); line.textContent = words;
    note.append(line);
    box.after(note);
  }

  document.addEventListener("change", (event) => {
    const input = event.target, box = input.type === "file" && input.closest(AUDIO);
    if (!box || !input.files.length) return;
    const {mb, words} = window.cosyUpload, large = [...input.files].find((file) => file.size > mb * 1e6);
    fileNote(box, large && words[zh].replace("{name}", large.name));
    if (large) {
      event.stopImmediatePropagation();
      input.value = "";
    } else if ([...input.files].some((file) => !file.type.startsWith("audio/"))) {
      const held = new DataTransfer();
      for (const file of input.files) held.items.add(new File([file], file.name, {type: "audio/wav"}));
      input.files = held.files;
    }
  }, true);

  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();                            // a file that misses its box must not replace the page
    const box = event.target.closest?.(AUDIO), input = box && $("input[type=file]", box);
    if (!input) return;
    event.stopImmediatePropagation();
    event.target.dispatchEvent(new DragEvent("dragleave", {bubbles: true}));
    input.files = event.dataTransfer.files;
    input.dispatchEvent(new Event("change", {bubbles: true}));
  }, true);
  document.addEventListener("dragover", (event) => event.preventDefault());

  // Marks

  function write(selector, value) {
    const box = $(selector);
    box.value = value;
    box.focus();
    box.dispatchEvent(new Event("input", {bubbles: true}));
  }

  function insert({before, after}) {
    const box = $("#text textarea");
    if (!box) return;
    const {selectionStart: a, selectionEnd: b, value} = box;
    box.value = value.slice(0, a) + before + value.slice(a, b) + after + value.slice(b);
    box.focus();
    box.setSelectionRange(a + before.length + (after ? b - a : 0), a + before.length + (after ? b - a : 0));
    box.dispatchEvent(new Event("input", {bubbles: true}));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-act]");
    if (!button) return;
    const {act: what, take, part, voice} = button.dataset;
    if (what === "play-part") playPart(clipOf(button));
    if (what === "mark") insert(button.dataset);
    if (what === "redo") { window.cosyPlayer.stop(); act("act-redo", "redo", take, part); }
    if (what === "copy") { act("act-copy", "copy", take); $("#mode")?.scrollIntoView({behavior: "smooth"}); }
    if (what === "words-back") { write("#transcript textarea", button.dataset.words); hideGone(); }
    if (what === "use-voice" || what === "delete-voice" || what === "undo-voice") act("act-voice", what, voice);
  });

  document.addEventListener("keydown", (event) => {
    const handle = event.target.closest?.(".handle");
    const step = {ArrowLeft: -0.1, ArrowRight: 0.1, ArrowDown: -0.1, ArrowUp: 0.1, PageDown: -1, PageUp: 1}[event.key];
    if (handle && step) {
      event.preventDefault();
      const clip = clipOf(handle), [, , , ...from] = read(clip);
      move(clip, event.shiftKey ? "both" : handle.dataset.handle, step, from);
      moved(clip);
    } else if (event.key === "Escape") {
      press("#stop");
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      document.activeElement?.blur?.();
      press("#generate");
    }
  });
  function press(id) {
    const button = $(id);
    if (button && !button.disabled) button.click();
  }

  // What became of the old words is of no use any more when new ones are written.
  const hideGone = () => $("#words-gone .note")?.style.setProperty("display", "none");
  document.addEventListener("input", (event) => { if (event.isTrusted && event.target.closest?.("#transcript")) hideGone(); });

  // A seed that is typed is meant to be kept.
  document.addEventListener("input", (event) => {
    const lock = $("#lock input");
    if (event.target.closest?.("#seed") && lock && !lock.checked && event.target.value) lock.click();
  });

  // The worklet is loaded while the button is still being pressed.
  document.addEventListener("pointerdown", (event) => {
    if (event.target.closest?.("#generate")) window.cosyPlayer.prepare(Number(window.cosyRate));
  }, true);

  // One sound at a time; and a take that is being heard goes on when a new one redraws the list.
  let heard = null;
  const hush = (but) => {
    document.dispatchEvent(new CustomEvent("cosy-sound", {detail: but}));
    for (const other of document.querySelectorAll("audio")) if (other !== but) other.pause();
    if (sample !== but) sample?.pause();
  };
  document.addEventListener("cosy-sound", ({detail}) => {
    if (!detail || detail instanceof Element) return;  // from hush itself
    for (const other of document.querySelectorAll("audio")) other.pause();
    sample?.pause();
  });
  document.addEventListener("play", ({target}) => {
    hush(target);
    if (target.closest(".takes")) heard = {node: target, src: target.src, at: target.currentTime};
  }, true);
  const stillThere = () => heard.node.isConnected && heard.node.src === heard.src;     // rows are reused for other takes
  document.addEventListener("timeupdate", ({target}) => { if (target === heard?.node && stillThere()) heard.at = target.currentTime; }, true);
  document.addEventListener("pause", ({target}) => { if (target === heard?.node && stillThere()) heard = null; }, true);
  const goOn = () => {
    if (!heard || stillThere()) return;
    const again = [...document.querySelectorAll(".takes audio")].find((audio) => audio.src === heard.src), {at} = heard;
    if (!again) return;                                // the old list has gone, the new one comes
    heard = null;
    again.currentTime = at;
    again.play().catch(() => {});
  };
  new MutationObserver(goOn).observe(document.documentElement, {childList: true, subtree: true});
  document.addEventListener("click", (event) => { if (event.target.closest?.("#generate, [data-act=redo]")) hush(); }, true);

  // On a phone the buttons are far from what they do: show it.
  document.addEventListener("click", (event) => {
    if (innerWidth <= 800 && event.target.closest?.("#generate, [data-act=redo]"))
      $("#status")?.scrollIntoView({behavior: "smooth", block: "center"});
  });

  // Choices that this machine cannot run stay visible, greyed, with the reason on them.
  const reasons = window.cosyCannot || {};
  const grey = () => {
    for (const input of document.querySelectorAll(`${AUDIO} input[type=file]`))
      if (!input.accept.includes("video/mp4")) input.accept += ", video/mp4, video/webm, .mkv";     // offered by the picker too
    for (const input of document.querySelectorAll("#precision input[type=radio], #tier input[type=radio]")) {
      const why = reasons[input.value];
      if (!why || input.disabled) continue;
      input.disabled = true;
      input.closest("label").classList.add("cannot");
      input.closest("label").title = why[zh];
    }
  };
  new MutationObserver(grey).observe(document.documentElement, {childList: true, subtree: true});
})();
