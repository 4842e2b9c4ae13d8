import { useMemo, useState } from "preact/hooks";
import type { Entry, Objects, Timeline } from "../api";
import { Answered, Empty, MissingNotices, SessionNotices } from "../components/Answered";
import { Combobox, matching, type Choice } from "../components/Combobox";
import { Commands } from "../components/Command";
import { DataTable, type Column } from "../components/DataTable";
import { MaybeObject, ObjectLink } from "../components/ObjectLink";
import { Page } from "../components/Page";
import { objectChoices } from "../components/Shell";
import { Badge, PhaseBadge } from "../components/Status";
import { TimeStrip } from "../components/TimeStrip";
import { dateTime, duration, many, natural, parts } from "../format";
import { phaseAt, timeOf } from "../layout/timeline";
import { now, useAnswer, useMeasured, useTick } from "../live";
import { queryString, setQuery, usePlace } from "../router";

const HOUR = 3_600_000;
const WINDOWS: readonly [string, string, number][] = [
  ["1h", "1 hour", HOUR],
  ["24h", "24 hours", 24 * HOUR],
  ["7d", "7 days", 7 * 24 * HOUR],
];
const KINDS: readonly Entry["kind"][] = ["phase", "command", "report", "callback", "event"];

/** What happened to an object, a device or a namespace. */
export function TimelinePage() {
  const { query } = usePlace();
  const subject = subjectOf(query);
  const url = subject && "/api/timeline" + queryString({ [subject.by]: subject.name });
  // The history is read of NATS as a whole.
  const answer = useAnswer<Timeline>(url, 3000);
  useMeasured("timeline", answer);
  return (
    <Page title="Timeline" stale={answer.stale} beside={subject && <SubjectName {...subject} />}>
      <SubjectSearch />
      {url === undefined ? (
        <>
          <SessionNotices />
          <Empty title="Choose an object, a device or a namespace.">
            Its phases, and the commands, reports, callbacks and events of the last 7 days are shown.
          </Empty>
        </>
      ) : (
        <Answered answer={answer} url={url} what="the timeline">
          {(data) => <History key={url} data={data} single={subject?.by === "object"} />}
        </Answered>
      )}
    </Page>
  );
}

interface Subject {
  by: "object" | "device" | "namespace";
  name: string;
}

function subjectOf(query: URLSearchParams): Subject | undefined {
  for (const by of ["object", "device", "namespace"] as const) {
    const name = query.get(by);
    if (name) return { by, name };
  }
  return undefined;
}

function SubjectName({ by, name }: Subject) {
  return (
    <span class="subject">
      {by === "object" ? (
        <ObjectLink object={name} />
      ) : by === "device" ? (
        <ObjectLink object={`FabricDevice/${name}`} />
      ) : (
        <>
          <span class="kind">namespace</span>
          <a href={"/objects" + queryString({ namespace: name })}>
            <bdi>{name}</bdi>
          </a>
        </>
      )}
    </span>
  );
}

/** Chooses what the timeline is of. */
function SubjectSearch() {
  const [used, setUsed] = useState(false);
  const { data } = useAnswer<Objects>(used ? "/api/objects" : undefined);
  const choices = useMemo((): Choice[] => {
    const objects = data?.objects ?? [];
    const namespaces = new Set<string>();
    const devices: string[] = [];
    for (const { object } of objects) {
      const { kind, namespace, name } = parts(object);
      if (namespace !== undefined) namespaces.add(namespace);
      if (kind === "FabricDevice") devices.push(name);
    }
    return [
      ...devices.sort(natural).map((d) => ({ value: `device\n${d}`, label: d, hint: "device" })),
      ...[...namespaces].sort(natural).map((n) => ({ value: `namespace\n${n}`, label: n, hint: "namespace" })),
      ...objectChoices(data).map((c) => ({ ...c, value: `object\n${c.value}` })),
    ];
  }, [data]);
  return (
    <Combobox
      class="subject-search"
      label="Timeline of"
      placeholder="Object, device or namespace"
      suggest={(text) => matching(choices, text, 14)}
      pick={(c) => {
        const [by = "", name = ""] = c.value.split("\n");
        setQuery({ object: undefined, device: undefined, namespace: undefined, at: undefined, page: undefined, [by]: name }, true);
      }}
      inUse={setUsed}
    />
  );
}

function History({ data, single }: { data: Timeline; single: boolean }) {
  useTick();
  const { query } = usePlace();
  const end = now();
  const preset = WINDOWS.find(([name]) => name === query.get("window")) ?? WINDOWS[2]!;
  const ownFrom = Number(query.get("from"));
  const ownTo = Number(query.get("to"));
  const own = ownFrom > 0 && ownTo > ownFrom;
  const from = own ? ownFrom : end - preset[2];
  const to = own ? ownTo : end;
  const atText = query.get("at");
  const cursor = Math.min(Math.max(atText === null ? to : Number(atText) || to, from), to);

  const kindsText = query.get("kinds") ?? "";
  const failedOnly = query.get("failed") === "1";
  const kinds = useMemo(() => new Set(kindsText ? kindsText.split(",") : KINDS), [kindsText]);
  const chosen = useMemo(
    () => data.entries.filter((e) => kinds.has(e.kind) && (!failedOnly || e.failed)),
    [data, kinds, failedOnly],
  );
  // The window moves with time; the list changes only when an entry leaves or enters it.
  const inWindow = chosen.filter((e) => timeOf(e) >= from && timeOf(e) <= to);
  const rows = useStable(inWindow);
  const phase = phaseAt(data.entries, cursor);
  const before = data.entries.findLast((e) => timeOf(e) <= cursor);
  const failed = inWindow.filter((e) => e.failed).length;

  const setCursor = (at: number | undefined) =>
    setQuery({ at: at === undefined || at >= to ? undefined : String(Math.round(at)) });
  const step = (direction: 1 | -1) => {
    const times = chosen.map(timeOf);
    const next = direction > 0 ? times.find((t) => t > cursor) : times.findLast((t) => t < cursor);
    if (next !== undefined) setCursor(next);
  };
  const toggleKind = (kind: Entry["kind"]) => {
    const next = new Set(kinds);
    if (!next.delete(kind)) next.add(kind);
    setQuery({ kinds: next.size === KINDS.length ? undefined : [...next].join(",") || "none", page: undefined });
  };
  return (
    <>
      <MissingNotices missing={data.missing} />
      <section class="block" aria-label="Over time">
        <div class="fabric-tools">
          <div class="tabs" role="group" aria-label="Window">
            {WINDOWS.map(([name, title]) => (
              <button
                key={name}
                type="button"
                aria-pressed={!own && preset[0] === name}
                onClick={() => setQuery({ window: name, from: undefined, to: undefined })}
              >
                {title}
              </button>
            ))}
          </div>
          {own && (
            <span class="muted">
              {dateTime(from)} to {dateTime(to)}
            </span>
          )}
          <fieldset class="filters">
            <legend>Show</legend>
            {KINDS.map((k) => (
              <label key={k}>
                <input type="checkbox" checked={kinds.has(k)} onChange={() => toggleKind(k)} />
                {k}s
              </label>
            ))}
            <label>
              <input
                type="checkbox"
                checked={failedOnly}
                onChange={() => setQuery({ failed: failedOnly ? undefined : "1", page: undefined })}
              />
              failures only
            </label>
          </fieldset>
          <span class="muted fabric-summary">
            {many(inWindow.length, "entry", "entries")}
            {failed > 0 && `, ${many(failed, "failure")}`}
            {data.cutTo !== undefined && `; only the newest ${data.cutTo.toLocaleString("en")} are known`}
          </span>
        </div>
        <TimeStrip
          entries={chosen}
          single={single}
          from={from}
          to={to}
          cursor={cursor}
          setCursor={setCursor}
          setWindow={(a, b) => setQuery({ from: String(Math.round(a)), to: String(Math.round(b)), at: undefined }, true)}
        />
        <div class="scrub">
          <button type="button" onClick={() => step(-1)} aria-label="Previous entry">
            <span aria-hidden="true">◂</span>
          </button>
          <button type="button" onClick={() => step(1)} aria-label="Next entry">
            <span aria-hidden="true">▸</span>
          </button>
          <input
            type="range"
            aria-label="Time"
            aria-valuetext={`${dateTime(cursor)}${phase?.phase ? `, ${phase.phase}` : ""}`}
            min={from}
            max={to}
            step={Math.max(1, (to - from) / 2000)}
            value={cursor}
            onInput={(e) => setCursor(Number(e.currentTarget.value))}
          />
        </div>
        <div class="at-cursor">
          <strong>{cursor >= to && !own ? "Now" : dateTime(cursor)}</strong>
          {single &&
            (phase?.phase !== undefined ? (
              <>
                <PhaseBadge phase={phase.phase} />
                <span class="muted">for {duration(Math.floor((cursor - timeOf(phase)) / 1000) * 1000)}</span>
                <bdi class="name">{phase.text}</bdi>
              </>
            ) : (
              <span class="muted">its phase then is not known</span>
            ))}
          {!single && before && (
            <>
              <span class="muted">last before: {before.what}</span> <bdi class="name">{before.text}</bdi>
            </>
          )}
        </div>
      </section>
      <div class="block">
        <DataTable
          name=""
          title="Entries"
          columns={COLUMNS}
          rows={rows}
          rowKey={(r) => r.key}
          sort="at-"
          searchable
          rowClass={(r) => (r.entry === before ? "at-cursor-row" : r.entry.failed ? "failed-row" : undefined)}
          empty={<Empty title="Nothing happened in this window.">Choose a longer window, or show more kinds.</Empty>}
        />
      </div>
      <Commands commands={data.commands} />
    </>
  );
}

interface Keyed {
  key: string;
  entry: Entry;
}

/** The same array as before, as long as the entries are the same. */
function useStable(entries: Entry[]): Keyed[] {
  const [last, setLast] = useState<{ entries: Entry[]; keyed: Keyed[] }>();
  if (last && last.entries.length === entries.length && last.entries.every((e, i) => e === entries[i])) return last.keyed;
  const seen = new Map<string, number>();
  const keyed = entries.map((entry) => {
    const base = `${entry.at} ${entry.kind} ${entry.subject} ${entry.text}`;
    const n = seen.get(base) ?? 0;
    seen.set(base, n + 1);
    return { key: `${base} ${n}`, entry };
  });
  setLast({ entries, keyed });
  return keyed;
}

const COLUMNS: Column<Keyed>[] = [
  {
    key: "at",
    title: "Time",
    value: (r) => r.entry.at,
    cell: (r) => (
      <button type="button" class="inline nowrap" onClick={() => setQuery({ at: String(timeOf(r.entry)) })}>
        <time dateTime={r.entry.at}>{dateTime(r.entry.at)}</time>
      </button>
    ),
  },
  { key: "kind", title: "Kind", value: (r) => r.entry.kind },
  {
    key: "result",
    title: "Result",
    value: (r) => (r.entry.phase !== undefined ? r.entry.phase : r.entry.failed ? "failed" : ""),
    cell: (r) =>
      r.entry.phase !== undefined ? (
        <PhaseBadge phase={r.entry.phase} />
      ) : r.entry.failed ? (
        <Badge tone="bad" word="failed" />
      ) : null,
  },
  {
    key: "subject",
    title: "Subject",
    value: (r) => r.entry.subject,
    cell: (r) => <MaybeObject text={r.entry.subject} />,
  },
  { key: "what", title: "What", value: (r) => r.entry.what, class: "nowrap" },
  { key: "text", title: "Text", value: (r) => r.entry.text, class: "wrap" },
  {
    key: "took",
    title: "Took",
    value: (r) => r.entry.tookMs,
    cell: (r) => r.entry.tookMs !== undefined && <span class="nowrap">{duration(r.entry.tookMs)}</span>,
    numeric: true,
  },
  {
    key: "transaction",
    title: "Transaction",
    value: (r) => r.entry.transaction,
    cell: (r) => r.entry.transaction && <code>{r.entry.transaction}</code>,
  },
];

