// A terminal in a container: a ticket by the form, a WebSocket that shows it, and the channels of Kubernetes on that.
const STDIN = 0;
const ERROR = 3;
const RESIZE = 4;
const CHANNELS = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const PIECE = 32 * 1024;
const UNSHOWN_MAX = 32 * 1024 * 1024;
const ALIVE_MS = 20_000;

const form = document.querySelector("[data-terminal]");
const screen = document.querySelector("[data-terminal-screen]");
const said = document.querySelector("[data-terminal-said]");
const opener = document.querySelector("[data-terminal-open]");
const closer = document.querySelector("[data-terminal-close]");
const copier = document.querySelector("[data-terminal-copy]");
const reads = document.querySelector("[data-terminal-read]");
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const encoder = new TextEncoder();

let terminal = null;
let fit = null;
let socket = null;

const say = (text) => {
  said.textContent = text;
};

// What others have written is shown as letters, whatever it would like to be.
const plain = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, " ").slice(0, 500);

// The emulator writes style elements and style attributes, which the page's policy forbids; the same rules go by objects.
function styleByObjects() {
  const createElement = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const made = createElement(name === "style" ? "template" : name, options);
    if (name === "style") {
      const sheet = new CSSStyleSheet();
      document.adoptedStyleSheets.push(sheet);
      Object.defineProperty(made, "textContent", { set: (text) => sheet.replaceSync(text) });
    } else {
      const setAttribute = made.setAttribute.bind(made);
      made.setAttribute = (attribute, value) => {
        if (attribute === "style") made.style.cssText = value;
        else setAttribute(attribute, value);
      };
    }
    return made;
  };
}

// The colours of recordings, which are read from where they are named.
function theme() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen === "dark" || (chosen !== "light" && systemDark.matches);
  screen.classList.toggle("asciinema-player-theme-tenantry-dark", dark);
  screen.classList.toggle("asciinema-player-theme-tenantry-light", !dark);
  const style = getComputedStyle(screen);
  const named = (name) => style.getPropertyValue(`--term-color-${name}`).trim();
  const names = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
  const colours = { foreground: named("foreground"), background: named("background"), cursor: named("foreground") };
  names.forEach((name, number) => {
    colours[name] = named(number);
    colours[`bright${name[0].toUpperCase()}${name.slice(1)}`] = named(number + 8);
  });
  return { ...colours, selectionBackground: named("4"), selectionForeground: named("background") };
}

function repaint() {
  if (terminal) terminal.options.theme = theme();
}

async function emulator() {
  const [{ Terminal }, { FitAddon }] = await Promise.all([import(form.dataset.emulator), import(form.dataset.fit)]);
  styleByObjects();
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const made = new Terminal({
    fontFamily: '"Geist Mono", ui-monospace, monospace',
    fontSize: 13,
    cursorBlink: !still,
    minimumContrastRatio: 4.5,
    scrollback: 5000,
    screenReaderMode: reads.checked,
    theme: theme(),
    // What a container calls a link leads nowhere.
    linkHandler: { activate: () => {} },
  });
  fit = new FitAddon();
  made.loadAddon(fit);
  made.open(screen);
  made.textarea.setAttribute("aria-describedby", "terminal-keys");
  made.attachCustomKeyEventHandler(key);
  made.onData((text) => send(STDIN, encoder.encode(text)));
  made.onBinary((text) => send(STDIN, Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
  made.onResize(resized);
  made.onSelectionChange(() => {
    copier.hidden = !made.hasSelection();
  });
  new ResizeObserver(() => screen.hidden || fit.fit()).observe(screen);
  return made;
}

// False for what the shell is not to have.
function key(event) {
  const both = event.ctrlKey && event.shiftKey && !event.altKey && !event.metaKey;
  if (event.key === "F6" && event.shiftKey) {
    if (event.type === "keydown") (closer.hidden ? opener : closer).focus();
    event.preventDefault();
    return false;
  }
  if (both && event.code === "KeyC") {
    if (event.type === "keydown") copy();
    event.preventDefault();
    return false;
  }
  // The browser pastes.
  return !(both && event.code === "KeyV");
}

async function copy() {
  if (!terminal || !terminal.hasSelection()) return;
  let text = "Copied";
  try {
    await navigator.clipboard.writeText(terminal.getSelection());
  } catch {
    text = "The browser does not allow copying here";
  }
  document.dispatchEvent(new CustomEvent("toast", { detail: { text } }));
}

function send(channel, bytes) {
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  for (let start = 0; start < bytes.length; start += PIECE) {
    const piece = bytes.subarray(start, start + PIECE);
    const message = new Uint8Array(piece.length + 1);
    message[0] = channel;
    message.set(piece, 1);
    socket.send(message);
  }
}

function resized({ cols, rows }) {
  send(RESIZE, encoder.encode(JSON.stringify({ Width: cols, Height: rows })));
}

// Why it has ended, by what the cluster or the API server has said last.
function ending(status, event) {
  if (status && status.status === "Success") return "The command has ended.";
  if (status && status.reason === "NonZeroExitCode") {
    const cause = ((status.details && status.details.causes) || []).find((each) => each.reason === "ExitCode");
    return `The command has ended with the exit status ${plain(cause ? cause.message : "unknown")}.`;
  }
  if (status && status.code === 401) return "Ended: your session, or the right to this terminal, is over. Sign in again.";
  if (status && status.message) return `Ended: ${plain(status.message)}`;
  if (event.reason) return `Ended: ${plain(event.reason)}`;
  return "The connection was lost, and what ran in the terminal has probably ended with it.";
}

function isOpen(open) {
  const within = screen.contains(document.activeElement) || document.activeElement === closer;
  closer.hidden = !open;
  opener.hidden = open;
  for (const field of form.querySelectorAll("select, input:not([type=hidden])")) field.disabled = open;
  form.dataset.open = String(open);
  if (!open && within) opener.focus();
}

function connect({ ticket, path }) {
  const url = new URL(path, location.href);
  url.protocol = url.protocol.replace("http", "ws");
  const made = new WebSocket(url, [...CHANNELS, ticket]);
  let status = null;
  let why = "";
  let unshown = 0;
  let alive = 0;
  made.binaryType = "arraybuffer";
  made.addEventListener("open", () => {
    made.send(new Uint8Array(0));
    // Proxies end what is silent.
    alive = setInterval(() => made.send(new Uint8Array(0)), ALIVE_MS);
    resized(terminal);
    say("Open.");
    terminal.focus();
  });
  made.addEventListener("message", ({ data }) => {
    const bytes = new Uint8Array(data);
    if (bytes.length < 2) return;
    if (bytes[0] === ERROR) {
      try {
        status = JSON.parse(new TextDecoder().decode(bytes.subarray(1)));
      } catch {
        status = null;
      }
      return;
    }
    unshown += bytes.length;
    if (unshown > UNSHOWN_MAX) {
      why = "Ended: the output came faster than it can be shown.";
      made.close();
      return;
    }
    terminal.write(bytes.subarray(1), () => {
      unshown -= bytes.length;
    });
  });
  made.addEventListener("close", (event) => {
    clearInterval(alive);
    if (socket !== made) return;
    socket = null;
    say(why || ending(status, event));
    isOpen(false);
  });
  return made;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (socket || form.dataset.open === "true") return;
  const body = new FormData(form);
  say("Opening…");
  isOpen(true);
  try {
    screen.hidden = false;
    terminal ??= await emulator();
    terminal.reset();
    terminal.options.screenReaderMode = reads.checked;
    repaint();
    fit.fit();
    const answer = await fetch(form.action, { method: "POST", body, headers: { Accept: "application/json" } });
    // Whoever has to sign in comes back to this page.
    if (answer.redirected) return location.reload();
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.message);
    socket = connect(told);
  } catch (error) {
    say(`Not opened: ${plain(error.message)}`);
    isOpen(false);
    opener.focus();
  }
});

closer.addEventListener("click", () => {
  if (socket) socket.close(1000);
  socket = null;
  say("Closed.");
  isOpen(false);
});

copier.addEventListener("click", copy);
reads.checked = localStorage.getItem("terminal-reads") === "1";
reads.addEventListener("change", () => localStorage.setItem("terminal-reads", reads.checked ? "1" : "0"));
systemDark.addEventListener("change", repaint);
new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
addEventListener("beforeunload", (event) => {
  if (socket) event.preventDefault();
});
