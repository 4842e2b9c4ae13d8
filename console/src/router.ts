// Pages have real paths; what a page shows is in the query string, so that each view is a link.
import { useEffect, useState } from "preact/hooks";

export interface Place {
  path: string;
  query: URLSearchParams;
}

const read = (): Place => ({ path: location.pathname, query: new URLSearchParams(location.search) });

let place = read();
/** When the page that is open was asked for, as performance.now() counts. */
let openedAt = 0;
const listeners = new Set<() => void>();

function changed(): void {
  const before = place;
  place = read();
  if (before.path !== place.path) openedAt = performance.now();
  for (const listen of [...listeners]) listen();
}

/** Opens a page of the console. */
export function go(url: string): void {
  const from = place.path;
  history.pushState(null, "", url);
  changed();
  if (place.path !== from) scrollTo(0, 0);
}

/** Changes parameters of the query string; undefined or "" removes one. `push` makes a step that Back undoes. */
export function setQuery(changes: Record<string, string | undefined>, push = false): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  const url = location.pathname + (text && `?${text}`);
  if (url === location.pathname + location.search) return;
  if (push) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
  changed();
}

/** The place that is open; the component is drawn again when it changes. */
export function usePlace(): Place {
  const [, redraw] = useState({});
  useEffect(() => {
    const listen = () => redraw({});
    listeners.add(listen);
    return () => void listeners.delete(listen);
  }, []);
  return place;
}

export const pageOpenedAt = (): number => openedAt;

/** Lets plain links open pages without a request, and follows Back and Forward. */
export function startRouter(): void {
  addEventListener("popstate", changed);
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
      return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.getAttribute("href")?.startsWith("#")) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

/** A query string of what is defined. */
export function queryString(values: Record<string, string | undefined>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined && value !== "") query.set(name, value);
  const text = query.toString();
  return text && `?${text}`;
}
