import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Objects, Session } from "../api";
import { clock, dateTime, duration, parts, pathOf } from "../format";
import { useAnswer, useConnection, useSession, useTick } from "../live";
import { go, usePlace } from "../router";
import { Announcer, announce, useSpoken } from "./Announcer";
import { Combobox, matching, type Choice } from "./Combobox";
import { Icon } from "./Status";
import { nextTheme, themeNow, type Theme } from "./theme";

const NAVIGATION: readonly [string, string][] = [
  ["/", "Overview"],
  ["/objects", "Objects"],
  ["/fabric", "Fabric"],
  ["/timeline", "Timeline"],
  ["/plan", "Plan"],
  ["/addresses", "Addresses"],
];

/** What is around each page: the header, banners, quick search, help. */
export function Shell({ children }: { children: ComponentChildren }) {
  const { path } = usePlace();
  const session = useSession().data;
  const connection = useConnection();
  const help = useRef<HTMLDialogElement>(null);
  const [theme, setTheme] = useState<Theme>(themeNow);

  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target;
      const typing =
        target instanceof HTMLTextAreaElement ||
        target instanceof HTMLSelectElement ||
        (target instanceof HTMLInputElement && !["checkbox", "radio", "range"].includes(target.type));
      if (typing) return;
      if (event.key === "/") {
        event.preventDefault();
        document.getElementById("quick-search")?.focus();
      } else if (event.key === "?") {
        event.preventDefault();
        help.current?.showModal();
      }
    };
    document.addEventListener("keydown", key);
    return () => document.removeEventListener("keydown", key);
  }, []);

  if (connection.forbidden) return <Forbidden />;
  return (
    <>
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <header class="top">
        <a class="brand" href="/" aria-label="ENO, first page">
          ENO
        </a>
        <nav aria-label="Pages">
          {NAVIGATION.map(([url, title]) => (
            <a
              key={url}
              href={url}
              aria-current={path === url || (url === "/objects" && path.startsWith("/path/")) ? "page" : undefined}
            >
              {title}
            </a>
          ))}
        </nav>
        <QuickSearch />
        <Source session={session} />
        <LiveSign fixed={session?.asOf !== undefined} />
        <button
          type="button"
          class="tool"
          aria-label={`Theme: ${theme}. Change it`}
          title={`Theme: ${theme}`}
          onClick={() => setTheme(nextTheme())}
        >
          <svg class="glyph" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
            {theme === "dark" ? (
              <path d="M13 9.6A5.6 5.6 0 0 1 6.4 3 5.6 5.6 0 1 0 13 9.6z" />
            ) : theme === "light" ? (
              <path d="M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1v1.6M8 13.4V15M1 8h1.6M13.4 8H15M3 3l1.2 1.2M11.8 11.8 13 13M13 3l-1.2 1.2M4.2 11.8 3 13" />
            ) : (
              <path d="M8 2a6 6 0 1 0 0 12zM8 2a6 6 0 0 1 0 12" />
            )}
          </svg>
        </button>
        <button
          type="button"
          class="tool"
          aria-label="Keyboard help"
          title="Keyboard help (?)"
          onClick={() => help.current?.showModal()}
        >
          ?
        </button>
      </header>
      <Banners session={session} />
      {children}
      <Announcer />
      <Help dialog={help} />
    </>
  );
}

/** Where the data comes from. */
function Source({ session }: { session: Session | undefined }) {
  if (!session) return null;
  const text = session.source.replace(/^https?:\/\//, "");
  return (
    <span class="source" title={`${session.source}\neno ${session.version}`}>
      <span class="muted">{session.asOf === undefined ? "API" : "dump"}</span> <bdi class="name">{text}</bdi>
    </span>
  );
}

/** Whether the page follows changes. */
function LiveSign({ fixed }: { fixed: boolean }) {
  const connection = useConnection();
  const lost = connection.lostAt !== undefined;
  const was = useRef(lost);
  useEffect(() => {
    if (was.current !== lost) announce(lost ? "The connection to eno ui is lost." : "Connected to eno ui again.");
    was.current = lost;
  }, [lost]);
  const changed = connection.changedAt === undefined ? "" : `\nlast change at ${clock(connection.changedAt)}`;
  const word = lost ? "offline" : !connection.open ? "…" : fixed ? "read-only" : "live";
  return (
    <span class={`live ${lost ? "lost" : "on"}`} title={`revision ${connection.revision ?? "?"}${changed}`}>
      <span key={connection.revision} class="live-dot" aria-hidden="true" />
      {word}
    </span>
  );
}

function Banners({ session }: { session: Session | undefined }) {
  useTick();
  const { lostAt, kubernetes, nats } = useConnection();
  useSpoken(kubernetes ? "The API server does not answer" : "The API server answers");
  useSpoken(nats ? "NATS does not answer" : "NATS answers");
  const since = (at: number) => {
    const passed = Date.now() - at;
    return `since ${clock(at)}` + (passed < 5000 ? "" : ` (${duration(Math.floor(passed / 1000) * 1000)})`);
  };
  const banners: [string, ComponentChildren][] = [];
  if (lostAt !== undefined)
    banners.push([
      "bad",
      <>
        <strong>The connection to eno ui is lost</strong>: {since(lostAt)}. What you see is old. If it stays so, run{" "}
        <code>eno ui</code> again.
      </>,
    ]);
  if (kubernetes)
    banners.push([
      "away",
      <>
        <strong>The API server does not answer</strong> {since(kubernetes.since)}: <bdi>{kubernetes.text}</bdi>. What you
        see is from before.
      </>,
    ]);
  if (nats)
    banners.push([
      "away",
      <>
        <strong>NATS does not answer</strong> {since(nats.since)}: <bdi>{nats.text}</bdi>. Reports of drivers and agents
        are from before.
      </>,
    ]);
  if (session?.asOf !== undefined)
    banners.push([
      "info",
      <>
        <strong>As of {dateTime(session.asOf)}, from a dump</strong> (<bdi>{session.source}</bdi>), read-only. Nothing here
        changes.
      </>,
    ]);
  return (
    <section class="banners" aria-label="Notices">
      {banners.map(([tone, text], i) => (
        <p key={i} class={`banner tone-${tone}`}>
          <Icon tone={tone === "info" ? "none" : (tone as "bad" | "away")} />
          <span>{text}</span>
        </p>
      ))}
    </section>
  );
}

/** Finds an object, and opens its path. */
function QuickSearch() {
  const [used, setUsed] = useState(false);
  const { data } = useAnswer<Objects>(used ? "/api/objects" : undefined);
  const choices = useMemo(() => objectChoices(data), [data]);
  return (
    <Combobox
      class="quick"
      inputId="quick-search"
      label="Find an object"
      hideLabel
      placeholder="Find an object   /"
      suggest={(text) => (text ? matching(choices, text) : [])}
      pick={(c: Choice) => go(pathOf(c.value))}
      enter={(text) => text && go(`/objects?q=${encodeURIComponent(text)}`)}
      inUse={setUsed}
    />
  );
}

/** The objects as suggestions. */
export function objectChoices(data: Objects | undefined): Choice[] {
  return (data?.objects ?? []).map(({ object }) => {
    const { kind, namespace, name } = parts(object);
    return { value: object, label: namespace === undefined ? name : `${namespace}/${name}`, hint: kind };
  });
}

function Help({ dialog }: { dialog: { current: HTMLDialogElement | null } }) {
  const keys: [string, string][] = [
    ["/", "find an object"],
    ["?", "this help"],
    ["Tab, Shift+Tab", "next and previous control"],
    ["Enter, Space", "open a hop, a device or a link; expand a group"],
    ["Escape", "close the panel, and return to where you were"],
    ["←, →", "move the time cursor of the timeline"],
    ["↑, ↓", "choose a suggestion of a search"],
  ];
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title">
      <h2 id="help-title">Keyboard</h2>
      <dl>
        {keys.map(([key, does]) => (
          <div key={key}>
            <dt>
              {key.split(", ").map((k) => (
                <kbd key={k}>{k}</kbd>
              ))}
            </dt>
            <dd>{does}</dd>
          </div>
        ))}
      </dl>
      <button type="button" onClick={() => dialog.current?.close()}>
        Close
      </button>
    </dialog>
  );
}

function Forbidden() {
  return (
    <main id="main" class="forbidden">
      <h1>Open the URL that eno ui printed</h1>
      <p>
        The server does not know this browser. <code>eno ui</code> prints a URL with a key when it starts; open that one. It
        is good for as long as <code>eno ui</code> runs.
      </p>
      <button type="button" onClick={() => location.reload()}>
        Try again
      </button>
    </main>
  );
}
