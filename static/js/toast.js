// Messages of the server stand in the page; others arrive as a "toast" event, from a script or an HX-Trigger header.
const host = document.getElementById("toasts");
const template = document.getElementById("toast-template");

function leave(toast) {
  toast.classList.add("toast--leaving");
  setTimeout(() => toast.remove(), 300);
}

function arm(toast) {
  if (toast.dataset.verdict !== "deny") setTimeout(() => leave(toast), 6000);
}

// What is said again takes the place of what was said before.
function show(detail) {
  const toast = template.content.firstElementChild.cloneNode(true);
  toast.dataset.verdict = detail.verdict || "allow";
  toast.querySelector("[data-text]").textContent = detail.text;
  for (const old of host.querySelectorAll(".toast")) {
    if (old.querySelector("[data-text]").textContent === detail.text) old.remove();
  }
  host.append(toast);
  arm(toast);
}

// Beside an open dialog nothing is heard, seen clearly or reached: its toasts stand in it, and out again before it is emptied.
function settle() {
  const place = [document.body, ...document.querySelectorAll("dialog[open]")].at(-1);
  if (host.parentElement !== place) place.append(host);
}

if (host) {
  host.querySelectorAll(".toast").forEach(arm);
  host.addEventListener("click", (event) => {
    if (event.target.closest("[data-dismiss]")) leave(event.target.closest(".toast"));
  });
  const watching = new MutationObserver(settle);
  for (const dialog of document.querySelectorAll("dialog")) {
    watching.observe(dialog, { attributeFilter: ["open"], childList: true });
  }
  // What asks by itself every few seconds says in its own place that nobody answers.
  const asksByItself = (event) => event.target instanceof Element && event.target.matches("[data-live]");
  document.addEventListener("toast", (event) => {
    if (!asksByItself(event)) show(event.detail);
  });
  for (const failure of ["htmx:responseError", "htmx:sendError"]) {
    document.addEventListener(failure, (event) => {
      // The server's own words have come with the answer, as a toast of their own.
      if (asksByItself(event) || event.detail.xhr.getResponseHeader("HX-Trigger")) return;
      show({ verdict: "deny", text: "That did not work: there was no answer. Try again in a moment." });
    });
  }
}
