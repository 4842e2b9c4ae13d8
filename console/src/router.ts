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

/** Browsers limit how often an address may be replaced; between two times at least this passes, in ms. */
const PAUSE = 120;
let replacedAt = -Infinity;
let waiting: { url: string; timer: number } | undefined;

/** Writes an address that waits to be written. */
function flush(): void {
  if (!waiting) return;
  clearTimeout(waiting.timer);
  history.replaceState(null, "", waiting.url);
  replacedAt = performance.now();
  waiting = undefined;
}

function replace(url: string): void {
  if (waiting) clearTimeout(waiting.timer);
  const pause = Math.max(0, replacedAt + PAUSE - performance.now());
  waiting = { url, timer: window.setTimeout(flush, pause) };
  if (pause === 0) flush();
}

/** Opens a page of the console. */
export function go(url: string): void {
  const from = place.path;
  flush();
  history.pushState(null, "", url);
  changed();
  if (place.path !== from) scrollTo(0, 0);
}

/** Changes parameters of the query string; undefined or "" removes one. `push` makes a step that Back undoes. */
export function setQuery(changes: Record<string, string | undefined>, push = false): void {
  const query = new URLSearchParams(place.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  if (text === place.query.toString()) return;
  const url = place.path + (text && `?${text}`);
  if (push) {
    flush();
    history.pushState(null, "", url);
  } else replace(url);
  place = { path: place.path, query };
  for (const listen of [...listeners]) listen();
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
  addEventListener("popstate", () => {
    if (waiting) clearTimeout(waiting.timer);
    waiting = undefined;
    changed();
  });
  addEventListener("pagehide", flush);
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
