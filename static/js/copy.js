// [data-copy="#id"] copies that element's text; [data-copy-text] copies its own value.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy], [data-copy-text]");
  if (!button) return;
  event.preventDefault();
  const source = button.dataset.copy && document.querySelector(button.dataset.copy);
  const text = source ? source.textContent : button.dataset.copyText;
  let said = "Copied";
  try {
    await navigator.clipboard.writeText(text);
    if (source) source.dataset.kept = "";
  } catch {
    const range = document.createRange();
    if (source) {
      range.selectNodeContents(source);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
    }
    said = "The browser does not allow copying here; the text is selected";
  }
  document.dispatchEvent(new CustomEvent("toast", { detail: { text: said } }));
});

// [data-download="#id"] saves that element's text under data-filename, from memory alone.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-download]");
  if (!button) return;
  const source = document.querySelector(button.dataset.download);
  const text = source.textContent;
  source.dataset.kept = "";
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-yaml" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: button.dataset.filename });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
});
