// [data-live] asks for itself only while somebody can see it, has not paused it and selects nothing in it.
const toggle = document.querySelector("[data-live-switch]");
const end = { at: true, top: 0 };
let paused = false;

const part = () => document.getElementById("live");

function selects(elt) {
  const selection = getSelection();
  return !selection.isCollapsed && elt.contains(selection.anchorNode);
}

document.addEventListener("htmx:beforeRequest", (event) => {
  const { elt } = event.detail;
  if (elt.matches("[data-live]") && (paused || document.hidden || selects(elt))) event.preventDefault();
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && part()) htmx.trigger(part(), "refresh");
});

function say(text) {
  if (toggle) toggle.querySelector("span").textContent = text;
}

document.addEventListener("htmx:afterRequest", (event) => {
  const { elt, successful } = event.detail;
  if (!elt.matches("[data-live]")) return;
  if (!paused) say(successful ? "Live" : "No answer");
  const unanswered = elt.querySelector("[data-unanswered]");
  if (unanswered) unanswered.hidden = successful;
});

if (toggle && part()) {
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    paused = !paused;
    toggle.setAttribute("aria-pressed", String(!paused));
    say(paused ? "Paused" : "Live");
    if (!paused) htmx.trigger(part(), "refresh");
  });
}

// [data-tail] is read at its end, unless somebody has scrolled up.
const tail = () => document.querySelector("[data-tail]");

function note() {
  const log = tail();
  if (!log) return;
  end.at = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  end.top = log.scrollTop;
}

function settle() {
  const log = tail();
  if (log) log.scrollTop = end.at ? log.scrollHeight : end.top;
}

document.addEventListener("htmx:beforeSwap", note);
document.addEventListener("htmx:afterSwap", settle);
settle();

// On a wide window the kinds stand open beside what is shown.
const wide = matchMedia("(min-width: 60.01rem)");
const kinds = document.querySelector("[data-wide-open]");

function unfold() {
  if (kinds) kinds.open = wide.matches;
}

wide.addEventListener("change", unfold);
unfold();
