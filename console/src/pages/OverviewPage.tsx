import { useMemo } from "preact/hooks";
import type { CallbackRow, DeviceRow, DriverRow, NodeRow, NotReady, Overview, Phase } from "../api";
import { byCause, type Cause } from "../causes";
import { useSpoken } from "../components/Announcer";
import { Answered, Empty, MissingNotices } from "../components/Answered";
import { Command, Commands } from "../components/Command";
import { DataTable, type Column } from "../components/DataTable";
import { Name } from "../components/Name";
import { ObjectLink } from "../components/ObjectLink";
import { Page } from "../components/Page";
import { Badge, Icon, PhaseBadge, StateBadge } from "../components/Status";
import { Ago } from "../components/Time";
import { command, duration, many, natural } from "../format";
import { useAnswer, useMeasured, useSession } from "../live";
import { queryString, setQuery, usePlace } from "../router";
import { badness, PHASES, phaseWord, toneOfPhase, type Tone } from "../state";

const URL = "/api/overview";

/** The first page: what is not ready, and all the parts at a glance. */
export function OverviewPage() {
  const answer = useAnswer<Overview>(URL);
  const session = useSession().data;
  useMeasured("overview", answer);
  const rest = session?.options;
  const behind = answer.data?.notReady.filter((n) => !n.degraded).length;
  useSpoken(
    behind === undefined
      ? undefined
      : behind === 0
        ? "Everything is ready"
        : many(behind, "object is not ready", "objects are not ready"),
  );
  return (
    <Page title="Overview" stale={answer.stale}>
      <Answered answer={answer} url={URL} what="the overview">
        {(data) => (
          <>
            <MissingNotices missing={data.missing} />
            <Headline data={data} />
            {data.notReady.length > 0 && <NotReadyList rows={data.notReady} />}
            <div class="overview-grid">
              <Counts counts={data.counts} />
              <Drivers rows={data.drivers} />
              <Callbacks rows={data.callbacks} />
            </div>
            <div class="block">
              <DataTable
                name="devices"
                title="Devices"
                columns={DEVICES}
                rows={data.devices}
                rowKey={(d) => d.name}
                sort="phase"
                empty={
                  <Empty title="There is no FabricDevice.">
                    ENO configures no switch. Write FabricDevices like those of examples/fabric.
                  </Empty>
                }
              />
            </div>
            <div class="block">
              <DataTable
                name="nodes"
                title="Nodes"
                columns={NODES}
                rows={data.nodes}
                rowKey={(n) => n.name}
                sort="state"
                empty={<Empty title="No node is known.">You may lack the right to list nodes.</Empty>}
              />
            </div>
            <Commands
              commands={[
                command(["eno", "status"], rest),
                ...(session?.asOf === undefined ? ["kubectl get fabricdevices", "eno callbacks list"] : []),
              ]}
            />
          </>
        )}
      </Answered>
    </Page>
  );
}

/** One sentence on all of it. */
function Headline({ data }: { data: Overview }) {
  const total = data.counts.reduce((sum, c) => sum + Object.values(c.phases).reduce((a, b) => a + (b ?? 0), 0), 0);
  const bad = data.notReady.filter((n) => n.phase === "error").length;
  const away = data.devices.filter((d) => d.reachable === false).length;
  const drift = data.devices.filter((d) => d.drift !== undefined).length;
  const behind = data.callbacks?.length ?? 0;
  const also = [
    away > 0 && many(away, "device does not answer", "devices do not answer"),
    drift > 0 && many(drift, "device has drift", "devices have drift"),
    behind > 0 && many(behind, "callback is behind", "callbacks are behind"),
  ].filter(Boolean);
  const degraded = data.notReady.filter((n) => n.degraded).length;
  const unready = data.notReady.length - degraded;
  if (degraded > 0) also.unshift(many(degraded, "object is degraded", "objects are degraded"));
  if (unready === 0)
    return (
      <p class={`headline tone-${degraded > 0 ? "bad" : also.length > 0 ? "wait" : "good"}`}>
        <Icon tone={total === 0 ? "none" : degraded > 0 ? "bad" : also.length > 0 ? "wait" : "good"} />
        <strong>
          {total === 0
            ? "There is no object of ENO yet."
            : also.length > 0
              ? "Every object is ready, but not all is well."
              : "Everything is ready."}
        </strong>
        <span class="muted">
          {total === 0 ? "Apply one, such as examples/demo." : many(total, "object")}
        </span>
        {also.length > 0 && (
          <span class={`also tone-${degraded > 0 ? "bad" : "wait"}`}>
            <Icon tone={degraded > 0 ? "bad" : "wait"} /> {also.join(" · ")}
          </span>
        )}
      </p>
    );
  return (
    <p class={`headline tone-${bad > 0 ? "bad" : "wait"}`}>
      <Icon tone={bad > 0 ? "bad" : "wait"} />
      <strong>{many(unready, "object is not ready", "objects are not ready")}</strong>
      <span class="muted">
        of {total.toLocaleString("en")}
        {bad > 0 && ` · ${bad} in error`}
        {also.length > 0 && ` · ${also.join(" · ")}`}
      </span>
    </p>
  );
}

const GROUPS: Record<string, { title: string; of: (n: NotReady) => string }> = {
  hop: { title: "hop", of: (n) => n.hop },
  device: { title: "device", of: (n) => n.devices.join(", ") || "no device" },
  reason: { title: "reason", of: (n) => n.reason },
};

const SORTS: Record<string, (a: NotReady, b: NotReady) => number> = {
  phase: (a, b) =>
    PHASES.indexOf(a.phase) - PHASES.indexOf(b.phase) || (a.since ?? "").localeCompare(b.since ?? ""),
  newest: (a, b) => (b.since ?? "").localeCompare(a.since ?? ""),
  oldest: (a, b) => (a.since ?? "~").localeCompare(b.since ?? "~"),
  name: (a, b) => natural(a.object, b.object),
};

/** The choice of a list without groups. */
const NO_GROUPS = "nothing";

/** So many objects are listed; the page of objects has all. */
const LISTED = 100;

function NotReadyList({ rows }: { rows: NotReady[] }) {
  const { query } = usePlace();
  const chosen = query.get("group") ?? "";
  const group = GROUPS[chosen];
  const isByCause = !group && chosen !== NO_GROUPS;
  const sort = SORTS[query.get("order") ?? "phase"] ?? SORTS["phase"]!;
  const groups = useMemo(() => {
    const order = [...rows].sort(sort);
    if (isByCause) return [];
    const shown = order.slice(0, LISTED);
    if (!group) return [["", shown] as const];
    const by = new Map<string, NotReady[]>();
    for (const row of shown) {
      const list = by.get(group.of(row));
      if (list) list.push(row);
      else by.set(group.of(row), [row]);
    }
    return [...by];
  }, [rows, group, isByCause, sort]);
  const causes = useMemo(() => (isByCause ? byCause([...rows].sort(sort)) : []), [rows, isByCause, sort]);
  return (
    <section class="block not-ready" aria-label="Not ready or degraded">
      <div class="table-tools">
        <h2>
          Not ready or degraded <span class="count">{rows.length}</span>
        </h2>
        <label class="choose">
          <span>Group by</span>
          <select value={chosen} onChange={(e) => setQuery({ group: e.currentTarget.value })}>
            <option value="">cause</option>
            <option value={NO_GROUPS}>nothing</option>
            {Object.entries(GROUPS).map(([key, g]) => (
              <option key={key} value={key}>
                {g.title}
              </option>
            ))}
          </select>
        </label>
        <label class="choose">
          <span>Sort by</span>
          <select value={query.get("order") ?? "phase"} onChange={(e) => setQuery({ order: e.currentTarget.value })}>
            <option value="phase">phase</option>
            <option value="newest">newest first</option>
            <option value="oldest">oldest first</option>
            <option value="name">name</option>
          </select>
        </label>
      </div>
      {isByCause && (
        <ul>
          {causes.slice(0, LISTED).map((cause) => (
            <CauseItem key={cause.devices.join() || cause.rows[0]!.object} cause={cause} />
          ))}
        </ul>
      )}
      {groups.map(([title, list]) => (
        <div key={title} class="not-ready-group">
          {group && (
            <h3>
              <bdi>{title}</bdi> <span class="count">{list.length}</span>
            </h3>
          )}
          <ul>
            {list.map((n) => (
              <NotReadyItem key={n.object} row={n} />
            ))}
          </ul>
        </div>
      ))}
      {(isByCause ? causes : rows).length > LISTED && (
        <p class="more">
          These are {LISTED} of {(isByCause ? causes : rows).length.toLocaleString("en")}. <a href="/objects?phase=error">All in error</a>,{" "}
          <a href="/objects?phase=pending">all that are pending</a>
        </p>
      )}
    </section>
  );
}

/** A cause as one item, with its objects below. */
function CauseItem({ cause: { devices, rows } }: { cause: Cause }) {
  const [first, ...others] = rows;
  if (first === undefined) return null;
  if (others.length === 0) return <NotReadyItem row={first} />;
  const worst = rows.every((n) => n.degraded) || rows.some((n) => n.phase === "error") ? "bad" : toneOfPhase(first.phase);
  return (
    <li class={`not-ready-cause tone-${worst}`}>
      <details>
        <summary>
          <Icon tone={worst} />{" "}
          <strong>
            <bdi>{devices.join(", ")}</bdi>
          </strong>{" "}
          <span class="count">{many(rows.length, "object")}</span> {first.message && <bdi class="name">{first.message}</bdi>}
        </summary>
        <ul>
          {rows.slice(0, LISTED).map((n) => (
            <NotReadyItem key={n.object} row={n} />
          ))}
        </ul>
        {rows.length > LISTED && (
          <p class="more">
            These are {LISTED} of {rows.length.toLocaleString("en")}.
          </p>
        )}
      </details>
    </li>
  );
}

function NotReadyItem({ row }: { row: NotReady }) {
  return (
    <li class={`not-ready-item tone-${row.degraded ? "bad" : toneOfPhase(row.phase)}`}>
      <div class="not-ready-what">
        {row.degraded ? <Badge tone="bad" word="degraded" /> : <PhaseBadge phase={row.phase} />}
        <ObjectLink object={row.object} />
        <span class="tag" title="the part of the path that is not done">
          {row.hop}
        </span>
        {row.devices.map((d) => (
          <a key={d} class="tag" href={"/fabric" + queryString({ device: d })}>
            <bdi>{d}</bdi>
          </a>
        ))}
        <span class="muted nowrap">
          {row.since && (
            <>
              since <Ago at={row.since} suffix={false} />
            </>
          )}
        </span>
      </div>
      <div class="not-ready-why">
        {row.message && <bdi class="name">{row.message}</bdi>}
        <span class="remedy">{row.remedy}</span>
      </div>
      <Command text={row.command} />
    </li>
  );
}

function Counts({ counts }: { counts: Overview["counts"] }) {
  const used = PHASES.filter((p) => counts.some((c) => c.phases[p]));
  const link = (kind: string, phase?: Phase) =>
    "/objects" + queryString({ kind, ...(phase ? { phase } : {}) });
  return (
    <section class="block">
      <h2>Objects by kind</h2>
      <div class="table-scroll" tabIndex={0} role="group" aria-label="Objects by kind">
        <table>
          <thead>
            <tr>
              <th scope="col">kind</th>
              {used.map((p) => (
                <th key={p} scope="col" class="number">
                  <Badge tone={toneOfPhase(p)} word={phaseWord(p)} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {counts.map((c) => (
              <tr key={c.kind}>
                <th scope="row">
                  <a href={link(c.kind)}>{c.kind}</a>
                </th>
                {used.map((p) => (
                  <td key={p} class="number">
                    {c.phases[p] ? <a href={link(c.kind, p)}>{c.phases[p]?.toLocaleString("en")}</a> : <span class="muted">·</span>}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Drivers({ rows }: { rows: DriverRow[] }) {
  return (
    <section class="block">
      <h2>Drivers</h2>
      {rows.length === 0 ? (
        <Empty title="No driver is known.">
          Drivers report over NATS. <code>eno check</code> says whether they run.
        </Empty>
      ) : (
        <div class="table-scroll" tabIndex={0} role="group" aria-label="Drivers">
          <table>
            <thead>
              <tr>
                <th scope="col">driver</th>
                <th scope="col">instance</th>
                <th scope="col" class="number">
                  targets
                </th>
                <th scope="col">version</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((d) => (
                <tr key={d.instance}>
                  <th scope="row">{d.driver}</th>
                  <td>
                    <Name text={d.instance} />
                  </td>
                  <td class="number">{d.targets ?? <span class="muted">not known</span>}</td>
                  <td class="version">{d.version}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Callbacks({ rows }: { rows: CallbackRow[] | undefined }) {
  return (
    <section class="block">
      <h2>
        Callbacks behind {rows && rows.length > 0 && <span class="count">{rows.length}</span>}
      </h2>
      {rows === undefined && <p class="muted">Not known: messages of NATS are not read.</p>}
      {rows?.length === 0 && <Badge tone="good" word="every callback was taken" />}
      <ul class="callbacks">
        {rows?.slice(0, 50).map((c) => (
          <li key={c.object}>
            <ObjectLink object={c.object} />
            <div>
              <Badge tone={c.nextTry === undefined ? "bad" : "wait"} word={c.nextTry === undefined ? "given up" : "retrying"} />{" "}
              <span class="muted">
                no. {c.counter}, {many(c.attempts, "try", "tries")}
                {c.nextTry !== undefined && `, next at ${new Date(c.nextTry).toLocaleTimeString("en-GB")}`}
              </span>
            </div>
            <bdi class="name muted">{c.error}</bdi>
          </li>
        ))}
      </ul>
    </section>
  );
}

const yes = (tone: Tone, word: string) => <Badge tone={tone} word={word} />;

const DEVICES: Column<DeviceRow>[] = [
  {
    key: "name",
    title: "Device",
    value: (d) => d.name,
    cell: (d) => <ObjectLink object={`FabricDevice/${d.name}`} short />,
  },
  {
    key: "phase",
    title: "Phase",
    value: (d) => phaseWord(d.phase),
    order: (d) => PHASES.indexOf(d.phase),
    cell: (d) => <PhaseBadge phase={d.phase} />,
  },
  {
    key: "reachable",
    title: "Reachable",
    value: (d) => (d.reachable === undefined ? undefined : d.reachable ? "yes" : "no"),
    cell: (d) =>
      d.reachable === undefined ? <span class="muted">not known</span> : d.reachable ? yes("good", "yes") : yes("away", "no"),
  },
  {
    key: "drift",
    title: "Drift",
    value: (d) => d.drift,
    cell: (d) => (d.drift === undefined ? <span class="muted">none</span> : <MarkedText tone="wait" text={d.drift} />),
    class: "wrap",
  },
  {
    key: "open",
    title: "Open trunks",
    value: (d) => d.openTrunk,
    cell: (d) => (d.openTrunk === undefined ? <span class="muted">none</span> : <MarkedText tone="wait" text={d.openTrunk} />),
    class: "wrap",
  },
  { key: "pending", title: "To change", value: (d) => d.pending, numeric: true },
  {
    key: "last",
    title: "Last transaction",
    value: (d) => d.lastTransaction?.at,
    cell: (d) => {
      const t = d.lastTransaction;
      if (!t) return <span class="muted">none</span>;
      return (
        <span class="nowrap" title={t.id}>
          <Ago at={t.at} /> <span class="muted">·</span> {duration(t.tookMs)} <span class="muted">·</span> +{t.added} −{t.removed}{" "}
          <span class={t.outcome === "confirmed" ? "muted" : "bad-text"}>{t.outcome}</span>
        </span>
      );
    },
  },
  { key: "message", title: "Message", value: (d) => d.message, class: "wrap" },
  {
    key: "driver",
    title: "Driver and model",
    value: (d) => [d.driver, d.model].filter(Boolean).join(", "),
  },
];

function MarkedText({ tone, text }: { tone: Tone; text: string }) {
  return (
    <span class={`marked tone-${tone}`}>
      <Icon tone={tone} /> <bdi>{text}</bdi>
    </span>
  );
}

const NODES: Column<NodeRow>[] = [
  {
    key: "name",
    title: "Node",
    value: (n) => n.name,
    cell: (n) => (
      <a href={"/fabric" + queryString({ node: n.name })}>
        <Name text={n.name} />
      </a>
    ),
  },
  {
    key: "ready",
    title: "Ready",
    value: (n) => (n.ready ? "yes" : "no"),
    cell: (n) => (n.ready ? yes("good", "yes") : yes("bad", "no")),
  },
  {
    key: "state",
    title: "Agent",
    value: (n) => n.state,
    order: (n) => (n.state === undefined ? undefined : badness(n.state)),
    cell: (n) => (n.state === undefined ? <span class="muted">no report</span> : <StateBadge state={n.state} />),
  },
  { key: "networks", title: "Networks", value: (n) => n.networks, numeric: true },
  { key: "links", title: "Interfaces in pods", value: (n) => n.links, numeric: true },
  { key: "message", title: "Message", value: (n) => n.message, class: "wrap" },
];
