// The theme: that of the system, or the one that the viewer chose, which the browser keeps.

export type Theme = "system" | "light" | "dark";

const KEY = "eno.theme";

export function themeNow(): Theme {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    return "system";
  }
}

/** Shows a theme. */
export function applyTheme(theme: Theme): void {
  if (theme === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", theme);
}

/** Goes on from system to light to dark. */
export function nextTheme(): Theme {
  const next: Theme = { system: "light", light: "dark", dark: "system" }[themeNow()] as Theme;
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // The browser keeps nothing; the theme holds until the page is left.
  }
  applyTheme(next);
  return next;
}
