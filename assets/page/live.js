// The live panel: asks the server every two seconds, only while the panel is on the screen of a page that is looked at.
(() => {
  const EVERY_MS = 2000, KEPT = 60;
  const root = () => (window.gradio_config?.root || "").replace(/\/$/, "");
  const zh = navigator.language.toLowerCase().startsWith("zh") ? 1 : 0;
  const history = {};
  let last = null, timer = 0, seen = false;

  const ratio = (used, most) => most ? used / most : 0;
  // Name -> [share of the tile's height, words]; null leaves the tile out.
  function tiles(now) {
    const {gpu, cpu, engine} = now, made = {};
    if (gpu) {
      if ("busy" in gpu) made.gpu_busy = [gpu.busy, `${Math.round(100 * gpu.busy)} %`];
      if ("memory_gb" in gpu) made.gpu_memory = [ratio(gpu.memory_gb, gpu.memory_most_gb), `${gpu.memory_gb.toFixed(1)} / ${gpu.memory_most_gb.toFixed(0)} GB`];
      if ("power_w" in gpu) made.gpu_power = [ratio(gpu.power_w, gpu.power_most_w), `${Math.round(gpu.power_w)} W`];
      if ("clock_mhz" in gpu) made.gpu_clock = [ratio(gpu.clock_mhz, gpu.clock_most_mhz), `${Math.round(gpu.clock_mhz)} MHz`];
    }
    if (cpu && "busy" in cpu) made.cpu_busy = [cpu.busy, `${Math.round(100 * cpu.busy)} %`];
    if (cpu && "memory_gb" in cpu) made.cpu_memory = [ratio(cpu.memory_gb, cpu.memory_most_gb), `${cpu.memory_gb.toFixed(2)} GB`];
    made.rows = [ratio(engine.rows, engine.rows_total), `${engine.rows} / ${engine.rows_total}`];
    const steps = last ? Math.max(0, (engine.steps - last.engine.steps) / Math.max(0.5, now.at_s - last.at_s)) : 0;
    const most = Math.max(1, steps, ...(history.steps || []).map((point) => point.raw || 0));
    made.steps = [steps / most, `${steps.toFixed(0)} /s`, steps];
    made.queue = [Math.min(1, engine.waiting / 8), `${engine.running} + ${engine.waiting}`];
    made.captures = [ratio(engine.captures_done, engine.captures_total), engine.captures_total ? `${engine.captures_done} / ${engine.captures_total}` : "–"];
    return made;
  }

  function draw(panel, now) {
    const words = JSON.parse(panel.dataset.words), box = panel.querySelector(".tiles");
    const note = panel.querySelector(".live-note");
    if (now.why_no_gpu?.[zh] && !note.textContent) note.textContent = now.why_no_gpu[zh];
    const made = tiles(now);
    for (const [name, [share, shown, raw]] of Object.entries(made)) {
      const points = history[name] ||= [];
      points.push({share, raw});
      if (points.length > KEPT) points.shift();
      let tile = box.querySelector(`[data-live=${name}]`);
      if (!tile) {
        tile = document.createElement("div");
        tile.dataset.live = name;
        tile.innerHTML = `<span class="dim"></span><b></b><svg viewBox="0 0 ${KEPT - 1} 30" preserveAspectRatio="none" aria-hidden="true"><path class="area"/><path class="edge"/></svg>`;
        tile.querySelector("span").textContent = words[name];
        box.append(tile);
      }
      tile.querySelector("b").textContent = shown;
      const top = name === "steps" ? Math.max(1, ...points.map((point) => point.raw || 0)) : 0;
      const line = points.map((point, i) => {
        const height = top ? (point.raw || 0) / top : point.share;
        return `${KEPT - points.length + i} ${(29 - 28 * Math.min(1, height)).toFixed(1)}`;
      }).join("L");
      tile.querySelector(".edge").setAttribute("d", `M${line}`);
      tile.querySelector(".area").setAttribute("d", `M${KEPT - points.length} 30L${line}L${KEPT - 1} 30Z`);
    }
    last = now;
  }

  async function tick() {
    timer = 0;
    const panel = document.querySelector("#live");
    if (!panel || !seen || document.visibilityState !== "visible") return;
    try {
      const answer = await fetch(`${root()}/live`, {cache: "no-store"});
      if (answer.ok) draw(panel, await answer.json());
    } catch { /* the server is away; the next tick asks again */ }
    if (!timer) timer = setTimeout(tick, EVERY_MS);
  }
  const wake = () => { if (!timer) tick(); };

  const watcher = new IntersectionObserver((entries) => {
    seen = entries[entries.length - 1].isIntersecting;
    if (seen) wake();
  });
  let watched = null;
  new MutationObserver(() => {
    const panel = document.querySelector("#live");
    if (panel === watched) return;
    if (watched) watcher.unobserve(watched);
    watched = panel;
    if (panel) watcher.observe(panel);
  }).observe(document.documentElement, {childList: true, subtree: true});
  document.addEventListener("visibilitychange", wake);
})();
