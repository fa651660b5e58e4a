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

function show(detail) {
  const toast = template.content.firstElementChild.cloneNode(true);
  toast.dataset.verdict = detail.verdict || "allow";
  toast.querySelector("[data-text]").textContent = detail.text;
  host.append(toast);
  arm(toast);
}

if (host) {
  host.querySelectorAll(".toast").forEach(arm);
  host.addEventListener("click", (event) => {
    if (event.target.closest("[data-dismiss]")) leave(event.target.closest(".toast"));
  });
  document.addEventListener("toast", (event) => show(event.detail));
  for (const failure of ["htmx:responseError", "htmx:sendError"]) {
    document.addEventListener(failure, (event) => {
      // What asks by itself every few seconds says in its own place that nobody answers.
      if (event.target.closest?.("[data-live]")) return;
      show({ verdict: "deny", text: "That did not work. Reload the page and try again." });
    });
  }
}
