// Plays the recording that [data-recording] names, in the page's colours.
const place = document.querySelector("[data-recording]");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const TEXT_MAX = 200_000;
let cast = "";
let player = null;

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen === "dark" || (chosen !== "light" && systemDark.matches);
};

const show = (selector) => {
  document.querySelector(selector).hidden = false;
};

// What was shown, without what moves the cursor: for screen readers, and for searching in the page.
function plain(lines) {
  const shown = lines.filter((event) => event[1] === "o").map((event) => event[2]);
  const text = shown.join("").replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])/g, "");
  return text.replace(/\r+\n/g, "\n").slice(-TEXT_MAX);
}

function draw(startAt) {
  if (player) player.dispose();
  player = AsciinemaPlayer.create({ data: cast }, place, {
    theme: isDark() ? "tenantry-dark" : "tenantry-light",
    fit: "width",
    controls: true,
    idleTimeLimit: 2,
    preload: true,
    startAt,
    terminalFontFamily: '"Geist Mono", ui-monospace, monospace',
    cursorMode: matchMedia("(prefers-reduced-motion: reduce)").matches ? "steady" : "blinking",
  });
}

function redraw() {
  if (player) draw(player.getCurrentTime());
}

const answer = await fetch(place.dataset.recording);
if (!answer.ok) {
  show("[data-recording-failed]");
} else {
  cast = await answer.text();
  const events = cast.split("\n").slice(1).filter(Boolean).map((line) => JSON.parse(line));
  if (!events.length) {
    show("[data-recording-empty]");
  } else {
    document.querySelector("[data-recording-text]").textContent = plain(events);
    draw(0);
    show("[data-recording-keys]");
    show("[data-recording-reading]");
    systemDark.addEventListener("change", redraw);
    new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }
}
