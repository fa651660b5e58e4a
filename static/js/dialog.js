// Whatever htmx puts into #dialog is shown as a modal; without scripts the same link is a page of its own.
const dialog = document.getElementById("dialog");

document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target !== dialog) return;
  if (!dialog.open) dialog.showModal();
  const first = dialog.querySelector("[autofocus], input:not([type=hidden]), textarea, select, .btn--primary");
  if (first) first.focus();
});

document.addEventListener("click", (event) => {
  const closer = event.target.closest("[data-close]");
  if (closer) {
    const host = closer.closest("dialog");
    if (host) {
      event.preventDefault();
      host.close();
    }
  } else if (event.target instanceof HTMLDialogElement && !holds(event.target)) {
    event.target.close();
  }
});

// [data-once] is shown once: neither a slip of the mouse nor Escape throws it away before it is kept.
function holds(host) {
  const once = host.querySelector("[data-once]:not([data-kept])");
  if (once) {
    const text = "This is shown once: copy or download it first, or close it with the button.";
    document.dispatchEvent(new CustomEvent("toast", { detail: { text, verdict: "wait" } }));
  }
  return once !== null;
}

if (dialog) {
  dialog.addEventListener("cancel", (event) => {
    if (holds(dialog)) event.preventDefault();
  });
}

// What was shown once is gone when its dialog closes.
if (dialog) dialog.addEventListener("close", () => dialog.replaceChildren());

// [data-confirm-name]: the button works once the name has been typed.
document.addEventListener("input", (event) => {
  const expected = event.target.dataset.confirmName;
  if (expected === undefined) return;
  const submit = event.target.form.querySelector("[type=submit]");
  submit.disabled = event.target.value.trim() !== expected;
});
