// Follows the theme button: light, dark, as the system says. A year's cookie lets the server paint it at once.
const order = ["auto", "light", "dark"];
const names = { auto: "as the system", light: "light", dark: "dark" };

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-theme-switch]");
  if (!button) return;
  const root = document.documentElement;
  const next = order[(order.indexOf(root.dataset.theme || "auto") + 1) % order.length];
  root.dataset.theme = next;
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `theme=${next}; Path=/; Max-Age=31536000; SameSite=Lax${secure}`;
  document.dispatchEvent(new CustomEvent("toast", { detail: { text: `Theme: ${names[next]}` } }));
});
