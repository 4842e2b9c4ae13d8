// What the server says: answers to requests, kept by URL, and the stream of events that says when to ask again.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { ApiError, Session, SourcesEvent, StateEvent } from "./api";
import { pageOpenedAt } from "./router";

/** An answer as a page sees it. After a failure the old data stays. */
export interface Answer<T> {
  data?: T;
  error?: ApiError;
  /** When the data came, in ms since 1970. */
  at?: number;
  /** The data is from before the connection was lost, or the last request failed. */
  stale: boolean;
  /** The event that caused the request for this data, as performance.now() counts. */
  cause?: number;
  /** How long the request took; for measurements. */
  requestMs?: number;
}

/** Between two requests of the same thing at least this passes, in ms. */
const GAP = 50;
/** So many answers are kept after no page shows them. */
const KEPT = 24;

/** One URL: at most one request of it is open, and one more is remembered. */
class Resource {
  answer: Answer<unknown> = { stale: false };
  readonly watchers = new Set<() => void>();
  readonly url: string;
  private text: string | undefined;
  private open = false;
  private again = false;
  private startedAt = -Infinity;
  private timer: number | undefined;
  private cause: number | undefined;

  /** Between two requests of it at least this passes, in ms. */
  gap = GAP;

  constructor(url: string) {
    this.url = url;
  }

  /** Asks, or asks once more when the open request is done. */
  ask(cause?: number): void {
    this.cause ??= cause;
    if (this.open) {
      this.again = true;
      return;
    }
    if (this.timer !== undefined) return;
    const wait = this.startedAt + (this.cause === undefined ? GAP : this.gap) - performance.now();
    if (wait > 0) {
      this.timer = window.setTimeout(() => {
        this.timer = undefined;
        void this.request();
      }, wait);
    } else void this.request();
  }

  markStale(): void {
    if (this.answer.data !== undefined && !this.answer.stale) this.put({ ...this.answer, stale: true });
  }

  private async request(): Promise<void> {
    this.open = true;
    this.startedAt = performance.now();
    const cause = this.cause;
    this.cause = undefined;
    try {
      const text = await requestText(this.url);
      const { cause: _, error: __, ...old } = this.answer;
      if (text === this.text) {
        if (this.answer.error || this.answer.stale) this.put({ ...old, stale: false });
      } else {
        this.text = text;
        const next: Answer<unknown> = {
          data: JSON.parse(text),
          at: Date.now(),
          stale: false,
          requestMs: performance.now() - this.startedAt,
        };
        if (cause !== undefined) next.cause = cause;
        this.put(next);
      }
    } catch (failure) {
      this.text = undefined;
      this.put({ ...this.answer, error: asApiError(failure), stale: this.answer.data !== undefined });
    }
    this.open = false;
    if (this.again) {
      this.again = false;
      if (this.watchers.size > 0) this.ask();
    }
  }

  private put(answer: Answer<unknown>): void {
    this.answer = answer;
    for (const watch of [...this.watchers]) watch();
  }
}

const resources = new Map<string, Resource>();

function resource(url: string): Resource {
  let found = resources.get(url);
  if (found) resources.delete(url);
  else found = new Resource(url);
  resources.set(url, found);
  for (const [key, old] of resources) {
    if (resources.size <= KEPT) break;
    if (old.watchers.size === 0 && key !== url) resources.delete(key);
  }
  return found;
}

/** An answer with a status of 400 or more, or none at all. */
export class Failed extends Error {
  readonly body: ApiError;
  readonly status: number;
  constructor(body: ApiError, status: number) {
    super(body.error);
    this.body = body;
    this.status = status;
  }
}

export function asApiError(failure: unknown): ApiError {
  if (failure instanceof Failed) return failure.body;
  return {
    error: failure instanceof Error ? failure.message : String(failure),
    fix: "Reload the page. If it stays, look at the output of `eno ui`.",
  };
}

async function checked(response: Response): Promise<string> {
  const text = await response.text();
  if (response.status === 401) setConnection({ forbidden: true });
  if (response.ok) return text;
  let body: ApiError | undefined;
  try {
    body = JSON.parse(text) as ApiError;
  } catch {
    // The body is no JSON; the status says what there is to say.
  }
  throw new Failed(
    {
      error: body?.error ?? `The server answered ${response.status} ${response.statusText}`,
      fix: body?.fix ?? "Look at the output of `eno ui`.",
    },
    response.status,
  );
}

async function send(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { credentials: "same-origin", cache: "no-store", ...init });
  } catch {
    throw new Failed({ error: "eno ui does not answer", fix: "See whether it still runs, and run `eno ui` again." }, 0);
  }
}

async function requestText(url: string): Promise<string> {
  return checked(await send(url, { headers: { accept: "application/json" } }));
}

/** Asks once, beside the answers that are kept. */
export async function request<T>(url: string): Promise<T> {
  return JSON.parse(await requestText(url)) as T;
}

/** Sends a body as JSON. */
export async function post<T>(url: string, body: unknown): Promise<T> {
  const headers = { accept: "application/json", "content-type": "application/json" };
  return JSON.parse(await checked(await send(url, { method: "POST", headers, body: JSON.stringify(body) }))) as T;
}

/**
 * The answer of a URL; asked when a page begins to show it and at each event, with a `gap` of ms between two requests.
 * undefined: nothing to ask.
 */
export function useAnswer<T>(url: string | undefined, gap: number = GAP): Answer<T> {
  const [, redraw] = useState({});
  useEffect(() => {
    if (url === undefined) return;
    const asked = resource(url);
    asked.gap = gap;
    const watch = () => redraw({});
    asked.watchers.add(watch);
    asked.ask();
    watch();
    return () => void asked.watchers.delete(watch);
  }, [url]);
  return url === undefined ? { stale: false } : (resource(url).answer as Answer<T>);
}

/** Asks for a URL again, after a failure. */
export const retry = (url: string): void => resource(url).ask();

let drawnPage = "";

/** Measures `eno:first-draw` and `eno:update` of the page, after the DOM has the data and its layout is done. */
export function useMeasured(page: string, answer: Answer<unknown>): void {
  const { data, cause } = answer;
  useLayoutEffect(() => {
    if (data === undefined) return;
    document.body.getBoundingClientRect();
    const end = performance.now();
    const detail = { page, requestMs: answer.requestMs };
    if (drawnPage !== `${page} ${pageOpenedAt()}`) {
      drawnPage = `${page} ${pageOpenedAt()}`;
      performance.measure("eno:first-draw", { start: pageOpenedAt(), end, detail });
    } else if (cause !== undefined) {
      performance.measure("eno:update", { start: cause, end, detail });
    }
  }, [data]);
}

/** What is known of the connection. */
export interface Connection {
  /** The stream of events is open. */
  open: boolean;
  /** Since when it is not, in ms since 1970. */
  lostAt?: number;
  /** The server wants the URL that `eno ui` printed. */
  forbidden: boolean;
  kubernetes?: { text: string; since: number };
  nats?: { text: string; since: number };
  /** The revision of the last event, and when it came. */
  revision?: number;
  changedAt?: number;
  objects?: string[];
}

let connection: Connection = { open: false, forbidden: false };
const connectionWatchers = new Set<() => void>();

function setConnection(changes: Partial<Connection>): void {
  connection = { ...connection, ...changes };
  for (const watch of [...connectionWatchers]) watch();
}

export function useConnection(): Connection {
  const [, redraw] = useState({});
  useEffect(() => {
    const watch = () => redraw({});
    connectionWatchers.add(watch);
    watch();
    return () => void connectionWatchers.delete(watch);
  }, []);
  return connection;
}

/** Asks again for all that is shown, and forgets what is not. */
function askAll(cause: number | undefined): void {
  for (const [url, one] of [...resources]) {
    if (one.watchers.size > 0) one.ask(cause);
    else resources.delete(url);
  }
}

function onState(event: MessageEvent<string>): void {
  const cause = performance.now();
  const state = JSON.parse(event.data) as StateEvent;
  const first = !connection.open || connection.revision === undefined;
  const { lostAt: _, objects: __, ...kept } = connection;
  connection = kept;
  setConnection({
    open: true,
    forbidden: false,
    revision: state.revision,
    changedAt: Date.now(),
    ...(state.objects && !first ? { objects: state.objects } : {}),
  });
  askAll(cause);
}

function onSources(event: MessageEvent<string>): void {
  const sources = JSON.parse(event.data) as SourcesEvent;
  const known = (text: string | undefined, old: Connection["nats"]) =>
    text === undefined ? undefined : { text, since: old?.since ?? Date.now() };
  const kubernetes = known(sources.kubernetes, connection.kubernetes);
  const nats = known(sources.nats, connection.nats);
  const { kubernetes: _, nats: __, ...rest } = connection;
  connection = rest;
  setConnection({ ...(kubernetes ? { kubernetes } : {}), ...(nats ? { nats } : {}) });
}

/** A new stream is tried after this, in ms; it doubles up to the last. */
const RETRY = [500, 8000] as const;

/** A hidden page closes its stream after this, in ms: a browser opens at most six connections to a server. */
const HIDDEN = 10_000;

/** Opens the stream of events and keeps it open while the page is visible. */
export function startEvents(): void {
  let wait: number = RETRY[0];
  let stream: EventSource | undefined;
  let retry: number | undefined;
  let hide: number | undefined;
  const connect = () => {
    retry = undefined;
    const own = new EventSource("/api/events");
    stream = own;
    own.addEventListener("open", () => {
      wait = RETRY[0];
    });
    own.addEventListener("state", onState);
    own.addEventListener("sources", onSources);
    own.addEventListener("error", () => {
      own.close();
      stream = undefined;
      // The stream does not tell a refusal from a lost connection; an answer does.
      requestText("/api/session").catch(() => undefined);
      if (connection.open || connection.lostAt === undefined) {
        setConnection({ open: false, lostAt: connection.lostAt ?? Date.now() });
        for (const one of resources.values()) one.markStale();
      }
      retry = window.setTimeout(connect, wait);
      wait = Math.min(wait * 2, RETRY[1]);
    });
  };
  document.addEventListener("visibilitychange", () => {
    window.clearTimeout(hide);
    if (document.visibilityState === "hidden") {
      hide = window.setTimeout(() => {
        window.clearTimeout(retry);
        retry = undefined;
        stream?.close();
        stream = undefined;
      }, HIDDEN);
    } else if (stream === undefined && retry === undefined) connect();
  });
  connect();
}

/** The time of what is shown: of the dump, or the present. */
export const now = (): number => (asOf === undefined ? Date.now() : asOf);
let asOf: number | undefined;

/** Learns of the session whether times are relative to a dump. */
export function useSession(): Answer<Session> {
  const answer = useAnswer<Session>("/api/session");
  const time = answer.data?.asOf === undefined ? NaN : Date.parse(answer.data.asOf);
  asOf = Number.isNaN(time) ? undefined : time;
  return answer;
}

const tickers = new Set<() => void>();
let ticking: number | undefined;

/** Draws the component again every few seconds, since it shows how long ago something was. */
export function useTick(): void {
  const [, redraw] = useState({});
  useEffect(() => {
    const tick = () => redraw({});
    tickers.add(tick);
    ticking ??= window.setInterval(() => {
      for (const each of [...tickers]) each();
    }, 5000);
    return () => void tickers.delete(tick);
  }, []);
}
