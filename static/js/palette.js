// ⌘K or Ctrl-K opens the palette; arrows walk its results; "g" and a letter goes places.
const palette = document.getElementById("palette");
const places = { o: "/", w: "/workspaces/", t: "/tenants/", a: "/audit/", k: "/tokens/", e: "/explain/" };
let pending = false;

function typing(target) {
  return target.closest("input, textarea, select, [contenteditable], dialog") !== null;
}

function open() {
  palette.showModal();
  const input = palette.querySelector("input");
  input.select();
}

if (palette) {
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "k" && (event.metaKey || event.ctrlKey)) {
      event.preventDefault();
      open();
    } else if (!event.metaKey && !event.ctrlKey && !event.altKey && !typing(event.target)) {
      if (event.key === "/") {
        event.preventDefault();
        open();
      } else if (pending && places[event.key]) {
        location.assign(places[event.key]);
      }
      pending = event.key === "g";
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-palette]")) open();
  });
  palette.addEventListener("keydown", (event) => {
    const links = [...palette.querySelectorAll(".palette__list a")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && links.length) {
      event.preventDefault();
      const at = links.indexOf(document.activeElement);
      links[(at + step + links.length) % links.length].focus();
    } else if (event.key === "Enter" && event.target.matches("input") && links.length) {
      event.preventDefault();
      links[0].click();
    }
  });
}
