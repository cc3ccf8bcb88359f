// The Compare and Doctor tabs: what is copied, and choices that this machine cannot run.
(() => {
  const $ = (selector, from = document) => from.querySelector(selector);

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
