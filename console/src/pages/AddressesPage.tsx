import { useMemo, useState } from "preact/hooks";
import type { Addresses, AddressAnswer, Lease } from "../api";
import { Answered, Empty, SessionNotices } from "../components/Answered";
import { Commands } from "../components/Command";
import { DataTable, type Column } from "../components/DataTable";
import { MaybeObject, ObjectLink } from "../components/ObjectLink";
import { Page } from "../components/Page";
import { command, countIds } from "../format";
import { useAnswer, useMeasured, useSession } from "../live";
import { queryString, setQuery, usePlace } from "../router";

const URL = "/api/addresses";

/** Pools of addresses, VLAN IDs, leases, and who has an address. */
export function AddressesPage() {
  const answer = useAnswer<Addresses>(URL);
  const session = useSession().data;
  const { query } = usePlace();
  const address = query.get("address") ?? "";
  useMeasured("addresses", answer);
  return (
    <Page title="Addresses" stale={answer.stale}>
      <SessionNotices />
      <WhoHas key={address} address={address} />
      <Answered answer={answer} url={URL} what="the addresses">
        {(data) => <Tables data={data} />}
      </Answered>
      <Commands
        commands={[
          command(["eno", "addresses", "-o", "wide"], session?.options),
          ...(address ? [command(["eno", "addresses", address], session?.options)] : []),
        ]}
      />
    </Page>
  );
}

/** Who has an address; it is kept in the query string. */
function WhoHas({ address }: { address: string }) {
  const [text, setText] = useState(address);
  const url = address ? "/api/address" + queryString({ address }) : undefined;
  const answer = useAnswer<AddressAnswer>(url);
  return (
    <section class="block who" aria-label="Who has an address">
      <form
        onSubmit={(e) => {
          e.preventDefault();
          setQuery({ address: text.trim() }, true);
        }}
      >
        <label class="choose">
          <span>Who has</span>
          <input
            type="text"
            value={text}
            spellcheck={false}
            placeholder="10.1.2.3 or fd00::1"
            onInput={(e) => setText(e.currentTarget.value)}
          />
        </label>
        <button type="submit">Find</button>
        {address && (
          <button type="button" onClick={() => setQuery({ address: undefined }, true)}>
            Clear
          </button>
        )}
      </form>
      {url !== undefined && (
        <Answered answer={answer} url={url} what={`who has ${address}`}>
          {(data) => (
            <div class="who-answer" role="status">
              {data.lines.map((l, i) => (
                <p key={i}>
                  <bdi class="name">{l}</bdi>
                </p>
              ))}
              {data.leases.length > 0 && (
                <ul>
                  {data.leases.map((l) => (
                    <li key={l.pod + l.interface}>
                      <code>{l.address}</code> <bdi class="name">{l.pod}</bdi> <span class="muted">{l.interface}</span>
                    </li>
                  ))}
                </ul>
              )}
            </div>
          )}
        </Answered>
      )}
    </section>
  );
}

interface Pool {
  key: string;
  subnet: string;
  network?: string;
  ipam: string;
  services: string[];
  by: string;
  range: string;
  size?: number;
  held: number;
}

interface Share {
  key: string;
  subnet: string;
  node?: string;
  blocks: string[];
  size?: number;
  used: number;
  waiting?: number;
}

function Tables({ data }: { data: Addresses }) {
  const pools = useMemo(
    () =>
      data.subnets.flatMap((s) =>
        s.pools.map(
          (p, i): Pool => ({ ...s, ...p, key: `${s.subnet} ${i}`, range: `${p.start} – ${p.end}` }),
        ),
      ),
    [data],
  );
  const shares = useMemo(
    () =>
      data.subnets.flatMap((s) =>
        (s.nodes ?? []).map((n, i): Share => ({ ...n, subnet: s.subnet, key: `${s.subnet} ${i}` })),
      ),
    [data],
  );
  const holders = useMemo(
    () =>
      Object.entries(data.vlanHolders).map(([id, owners]) => ({ id: Number(id), owners })),
    [data],
  );
  return (
    <>
      <div class="block">
        <DataTable
          name="pools"
          title="Pools of addresses"
          columns={POOLS}
          rows={pools}
          rowKey={(p) => p.key}
          empty={<Empty title="There is no Subnet.">Pods get addresses from Subnets.</Empty>}
        />
      </div>
      {shares.length > 0 && (
        <div class="block">
          <DataTable
            name="shares"
            title="Addresses that nodes hold"
            columns={SHARES}
            rows={shares}
            rowKey={(s) => s.key}
            searchable
            empty={<Empty title="No node holds addresses." />}
          />
        </div>
      )}
      <section class="block">
        <h2>VLAN IDs</h2>
        {data.vlans.length === 0 && <Empty title="There is no PhysicalNetwork with a list of IDs." />}
        <ul class="vlan-ids">
          {data.vlans.map((v) => {
            const used = countIds(v.used);
            const free = countIds(v.free);
            return (
              <li key={v.physicalNetwork}>
                <h3>
                  <ObjectLink object={`PhysicalNetwork/${v.physicalNetwork}`} short />
                </h3>
                <Meter used={used} of={used + free} label={`VLAN IDs used on ${v.physicalNetwork}`} />
                <dl class="facts">
                  {(
                    [
                      ["allowed", v.ids],
                      ["used", v.used],
                      ["free", v.free],
                    ] as const
                  ).map(([name, ids]) => (
                    <div key={name}>
                      <dt>{name}</dt>
                      <dd class="ids">
                        {ids || "none"} {ids && <span class="muted">({countIds(ids)})</span>}
                      </dd>
                    </div>
                  ))}
                </dl>
              </li>
            );
          })}
        </ul>
      </section>
      <div class="block">
        <DataTable
          name="leases"
          title="Leases"
          columns={LEASES}
          rows={data.leases}
          rowKey={(l) => `${l.address} ${l.pod} ${l.interface}`}
          searchable
          empty={<Empty title="No pod has an address of ENO." />}
        />
      </div>
      <div class="block">
        <DataTable
          name="vlans"
          title="Holders of VLAN IDs"
          columns={HOLDERS}
          rows={holders}
          rowKey={(h) => String(h.id)}
          searchable
          empty={<Empty title="No VLAN ID is held." />}
        />
      </div>
    </>
  );
}

/** How much of something is used, as a bar and in numbers. */
function Meter({ used, of, label }: { used: number; of: number | undefined; label: string }) {
  if (of === undefined || of === 0)
    return (
      <span class="meter-text">
        {used.toLocaleString("en")} used{of === undefined && <span class="muted"> of very many</span>}
      </span>
    );
  const share = Math.min(1, used / of);
  const tone = share >= 1 ? "bad" : share >= 0.9 ? "away" : share >= 0.75 ? "wait" : "good";
  return (
    <span class={`meter tone-${tone}`}>
      <svg
        class="meter-bar"
        viewBox="0 0 100 8"
        preserveAspectRatio="none"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={of}
        aria-valuenow={used}
        aria-valuetext={`${used} of ${of}`}
      >
        <rect class="meter-back" width="100" height="8" />
        <rect class="meter-used" width={share * 100} height="8" />
      </svg>
      <span class="meter-text">
        {used.toLocaleString("en")} used, {(of - used).toLocaleString("en")} free
        {share >= 1 && <strong> · full</strong>}
      </span>
    </span>
  );
}

const POOLS: Column<Pool>[] = [
  { key: "subnet", title: "Subnet", value: (p) => p.subnet, cell: (p) => <ObjectLink object={`Subnet/${p.subnet}`} short /> },
  { key: "network", title: "Network", value: (p) => p.network },
  { key: "by", title: "Given by", value: (p) => (p.by === "engine" ? "engine (hot-plug)" : p.ipam) },
  { key: "range", title: "Pool", value: (p) => p.range },
  {
    key: "used",
    title: "Used",
    value: (p) => (p.size === undefined ? `${p.held}` : `${p.held} of ${p.size}`),
    order: (p) => (p.size === undefined ? 0 : p.held / Math.max(p.size, 1)),
    cell: (p) => <Meter used={p.held} of={p.size} label={`Addresses used of ${p.subnet}, ${p.range}`} />,
  },
  { key: "free", title: "Free", value: (p) => (p.size === undefined ? undefined : p.size - p.held), numeric: true },
  {
    key: "services",
    title: "Services",
    value: (p) => p.services.join(" "),
    cell: (p) => p.services.map((s) => <div key={s}>{s.includes("/") ? <MaybeObject text={s} /> : <ObjectLink object={`L2Service/${s}`} short />}</div>),
  },
];

const SHARES: Column<Share>[] = [
  { key: "subnet", title: "Subnet", value: (s) => s.subnet, cell: (s) => <ObjectLink object={`Subnet/${s.subnet}`} short /> },
  { key: "node", title: "Node", value: (s) => s.node },
  { key: "blocks", title: "Holds", value: (s) => s.blocks.join(" ") },
  {
    key: "used",
    title: "Used",
    value: (s) => (s.size === undefined ? `${s.used}` : `${s.used} of ${s.size}`),
    order: (s) => (s.size === undefined ? 0 : s.used / Math.max(s.size, 1)),
    cell: (s) => <Meter used={s.used} of={s.size} label={`Addresses of ${s.subnet} used on ${s.node ?? "a node"}`} />,
  },
  { key: "waiting", title: "Pods waiting", value: (s) => s.waiting, numeric: true },
];

const LEASES: Column<Lease>[] = [
  {
    key: "address",
    title: "Address",
    value: (l) => l.address,
    cell: (l) => <a href={"/addresses" + queryString({ address: l.address })}>{l.address}</a>,
  },
  { key: "pod", title: "Pod", value: (l) => l.pod },
  { key: "interface", title: "Interface", value: (l) => l.interface },
  { key: "by", title: "Given by", value: (l) => l.givenBy },
  {
    key: "subnet",
    title: "Subnet",
    value: (l) => l.subnet,
    cell: (l) => l.subnet !== undefined && <ObjectLink object={l.subnet.includes("/") ? l.subnet : `Subnet/${l.subnet}`} short />,
  },
];

const HOLDERS: Column<{ id: number; owners: string[] }>[] = [
  {
    key: "id",
    title: "VLAN",
    value: (h) => h.id,
    cell: (h) => <a href={"/fabric" + queryString({ vlan: String(h.id) })}>{h.id}</a>,
  },
  {
    key: "owners",
    title: "Held by",
    value: (h) => h.owners.join(" "),
    cell: (h) => h.owners.map((o) => <div key={o}><MaybeObject text={o} /></div>),
  },
];

