import { useMemo, useState } from "preact/hooks";
import type { Fabric, FabricDevice, FabricLink, Mark, Vlans, VlanTree } from "../api";
import { Answered, Empty, ErrorNotice, MissingNotices } from "../components/Answered";
import { Combobox, matching, type Choice } from "../components/Combobox";
import { Commands } from "../components/Command";
import { DataTable, type Column } from "../components/DataTable";
import { elementId, FabricDrawing, Legend, type Keep, type Selection } from "../components/FabricDrawing";
import { DevicePanel, EndPanel, LinkPanel } from "../components/FabricPanels";
import { MaybeObject, ObjectLink } from "../components/ObjectLink";
import { Page } from "../components/Page";
import { focusLater } from "../components/Panel";
import { StateBadge } from "../components/Status";
import { command, many, natural } from "../format";
import { otherEnd, unitsOf } from "../layout/fabric";
import { useAnswer, useMeasured, useSession } from "../live";
import { queryString, setQuery, usePlace } from "../router";
import { badness, worst } from "../state";

const URL = "/api/fabric";
const FILTERS: readonly [string, string][] = [
  ["notok", "not confirmed"],
  ["foreign", "foreign"],
  ["drift", "drift"],
  ["open", "open"],
];

/** Switches, links, nodes and networks outside, as a drawing or as tables. */
export function FabricPage() {
  const { query } = usePlace();
  const answer = useAnswer<Fabric>(URL);
  const session = useSession().data;
  useMeasured("fabric", answer);
  const vlan = query.get("vlan") ?? undefined;
  const treeUrl = vlan === undefined ? undefined : "/api/fabric/vlan" + queryString({ id: vlan });
  const tree = useAnswer<VlanTree>(treeUrl);
  const table = query.get("view") === "table";
  const only = query.get("only") ?? "";
  const openText = query.get("nodes") ?? "";
  const opened = useMemo(() => new Set(openText ? openText.split(",") : []), [openText]);
  const keep = useMemo(() => keepOf(only), [only]);
  const selection: Selection = {};
  for (const key of ["device", "node", "network", "link"] as const) {
    const value = query.get(key);
    if (value !== null) selection[key] = value;
  }

  const select = (next: Selection) =>
    setQuery({ device: undefined, node: undefined, network: undefined, link: undefined, ...next });
  const chooseLink = (link: string) => setQuery({ link });
  const close = () => {
    const [kind, name] = Object.entries(selection).at(-1) ?? ["", ""];
    if (selection.link !== undefined && Object.keys(selection).length > 1) {
      setQuery({ link: undefined });
      return;
    }
    select({});
    focusLater(
      () => document.getElementById(elementId(kind, name)) ?? document.getElementById(elementId("row", name)),
    );
  };
  const toggle = (unit: string) => {
    const next = new Set(opened);
    if (!next.delete(unit)) next.add(unit);
    setQuery({ nodes: [...next].join(",") });
  };
  const toggleFilter = (name: string) => {
    const next = new Set(only ? only.split(",") : []);
    if (!next.delete(name)) next.add(name);
    setQuery({ only: [...next].join(",") });
  };
  const fabric = answer.data;
  let panel;
  if (fabric) {
    if (selection.link !== undefined) panel = <LinkPanel id={selection.link} close={close} />;
    else if (selection.device !== undefined)
      panel = <DevicePanel fabric={fabric} name={selection.device} close={close} select={chooseLink} />;
    else if (selection.node !== undefined)
      panel = <EndPanel fabric={fabric} name={selection.node} kind="node" close={close} select={chooseLink} />;
    else if (selection.network !== undefined)
      panel = <EndPanel fabric={fabric} name={selection.network} kind="network" close={close} select={chooseLink} />;
  }
  // A node that is chosen is drawn, though its unit is not expanded.
  const drawnOpen = useMemo(() => {
    if (!fabric || selection.node === undefined) return opened;
    const unit = unitsOf(fabric).find((u) => u.nodes.includes(selection.node!));
    return unit ? new Set([...opened, unit.key]) : opened;
  }, [fabric, opened, selection.node]);

  return (
    <Page
      title="Fabric"
      stale={answer.stale}
      panel={panel}
      beside={
        <div class="tabs" role="group" aria-label="View">
          <button type="button" aria-pressed={!table} onClick={() => setQuery({ view: undefined })}>
            Drawing
          </button>
          <button type="button" aria-pressed={table} onClick={() => setQuery({ view: "table" })}>
            Table
          </button>
        </div>
      }
    >
      <Answered answer={answer} url={URL} what="the fabric">
        {(data) => (
          <>
            <div class="fabric-tools">
              <FabricSearch fabric={data} select={select} />
              <fieldset class="filters">
                <legend>Only</legend>
                {FILTERS.map(([name, word]) => (
                  <label key={name}>
                    <input type="checkbox" checked={only.split(",").includes(name)} onChange={() => toggleFilter(name)} />
                    {word}
                  </label>
                ))}
              </fieldset>
              <Summary fabric={data} />
            </div>
            <MissingNotices missing={data.missing} />
            {vlan !== undefined && <VlanBar id={vlan} tree={tree.data} />}
            {tree.error && <ErrorNotice error={tree.error} />}
            {data.devices.length === 0 ? (
              <Empty title="There is no FabricDevice.">
                ENO configures no switch. Write FabricDevices like those of examples/fabric, with where their ports lead.
              </Empty>
            ) : table ? (
              <Tables fabric={data} keep={keep} tree={tree.data} select={select} />
            ) : (
              <>
                <FabricDrawing
                  fabric={data}
                  open={drawnOpen}
                  toggle={toggle}
                  selection={selection}
                  select={select}
                  keep={keep}
                  tree={tree.data}
                />
                <Legend />
              </>
            )}
            <Commands
              commands={[
                ...blameOf(data, selection.link ?? tree.data?.links[0]?.id, session?.options),
                ...(session?.asOf === undefined
                  ? ["kubectl get fabricdevices -o wide"]
                  : [command(["eno", "status", "-o", "wide"], session.options)]),
              ]}
            />
          </>
        )}
      </Answered>
    </Page>
  );
}

/** The command that tells who wants the VLANs of a link. */
function blameOf(fabric: Fabric, id: string | undefined, options: string | undefined): string[] {
  const link = fabric.links.find((l) => l.id === id);
  return link ? [command(["eno", "blame", link.device, link.port], options)] : [];
}

/** The filter as a function; undefined: all is kept. */
function keepOf(only: string): Keep | undefined {
  const names = only.split(",").filter(Boolean);
  if (names.length === 0) return undefined;
  return ({ state, marks }) =>
    names.some((n) => (n === "notok" ? state !== "confirmed" : marks.includes(n as Mark)));
}

function Summary({ fabric }: { fabric: Fabric }) {
  const bad = fabric.links.filter((l) => l.state !== "confirmed").length;
  const away = fabric.devices.filter((d) => d.state !== "confirmed").length;
  return (
    <p class="muted fabric-summary">
      {many(fabric.devices.length, "switch", "switches")}
      {away > 0 && `, ${away} not confirmed`} · {many(fabric.nodes.length, "node")} · {many(fabric.links.length, "link")}
      {bad > 0 && `, ${bad} not confirmed`}
    </p>
  );
}

/** Finds a device, a node, a network, or a VLAN by its ID or the name of its service. */
function FabricSearch({ fabric, select }: { fabric: Fabric; select: (s: Selection) => void }) {
  const [used, setUsed] = useState(false);
  const vlans = useAnswer<Vlans>(used ? "/api/fabric/vlans" : undefined).data;
  const choices = useMemo((): Choice[] => {
    const of = (hint: string, names: string[]) =>
      [...names].sort(natural).map((name) => ({ value: `${hint}\n${name}`, label: name, hint }));
    return [
      ...of("device", fabric.devices.map((d) => d.name)),
      ...of("network", fabric.networks),
      ...(vlans?.vlans ?? []).map((v) => ({
        value: `VLAN\n${v.id}`,
        label: `${v.id}  ${v.owners.join(" ")}`,
        hint: "VLAN",
      })),
      ...of("node", fabric.nodes),
    ];
  }, [fabric, vlans]);
  const pick = (choice: Choice) => {
    const [kind = "", name = ""] = choice.value.split("\n");
    if (kind === "VLAN") setQuery({ vlan: name }, true);
    else select({ [kind]: name });
  };
  return (
    <Combobox
      class="fabric-search"
      label="Find in the fabric"
      hideLabel
      placeholder="Device, node, VLAN or service"
      suggest={(text) => (text ? matching(choices, text) : [])}
      pick={pick}
      inUse={setUsed}
    />
  );
}

/** Which VLAN is highlighted, and whose it is. */
function VlanBar({ id, tree }: { id: string; tree: VlanTree | undefined }) {
  const state = tree ? worst([...tree.devices, ...tree.links].map((x) => x.state)) : undefined;
  return (
    <div class="vlan-bar" role="status">
      <strong>VLAN {id}</strong>
      {tree && tree.links.length === 0 && tree.devices.length === 0 && <span>is on no switch.</span>}
      {tree && tree.devices.length > 0 && (
        <>
          {state && <StateBadge state={state} />}
          <span>
            on {many(tree.devices.length, "switch", "switches")} and {many(tree.links.length, "link")}
          </span>
        </>
      )}
      {tree?.owners.slice(0, 5).map((o) => <MaybeObject key={o} text={o} />)}
      {tree && tree.owners.length > 5 && <span class="muted">and {tree.owners.length - 5} more</span>}
      <button type="button" onClick={() => setQuery({ vlan: undefined }, true)}>
        Show all VLANs
      </button>
    </div>
  );
}

const DEVICES: Column<FabricDevice>[] = [
  { key: "name", title: "Device", value: (d) => d.name, cell: (d) => <ObjectLink object={`FabricDevice/${d.name}`} short /> },
  { key: "level", title: "Level", value: (d) => d.level, numeric: true },
  { key: "state", title: "State", value: (d) => d.state, order: (d) => badness(d.state), cell: (d) => <StateBadge state={d.state} /> },
  { key: "vlans", title: "VLANs", value: (d) => d.vlans, numeric: true },
  { key: "marks", title: "Marks", value: (d) => d.marks.join(" ") },
  { key: "driver", title: "Driver", value: (d) => d.driver },
  { key: "message", title: "Message", value: (d) => d.message, class: "wrap" },
];

function Tables(props: {
  fabric: Fabric;
  keep: Keep | undefined;
  tree: VlanTree | undefined;
  select: (s: Selection) => void;
}) {
  const { fabric, keep, tree, select } = props;
  const devices = useMemo(() => {
    const of = tree && new Set(tree.devices.map((d) => d.name));
    return fabric.devices.filter((d) => (!keep || keep(d)) && (!of || of.has(d.name)));
  }, [fabric, keep, tree]);
  const links = useMemo(() => {
    const of = tree && new Set(tree.links.map((l) => l.id));
    return fabric.links.filter((l) => (!keep || keep(l)) && (!of || of.has(l.id)));
  }, [fabric, keep, tree]);
  const columns = useMemo(
    (): Column<FabricLink>[] => [
      { key: "device", title: "Device", value: (l) => l.device },
      {
        key: "port",
        title: "Port",
        value: (l) => l.port,
        cell: (l) => (
          <button type="button" class="inline" id={elementId("row", l.id)} onClick={() => select({ link: l.id })}>
            <bdi>{l.port}</bdi>
            <span class="offscreen"> of {l.device}</span>
          </button>
        ),
      },
      { key: "lag", title: "LAG", value: (l) => l.lag },
      {
        key: "kind",
        title: "Leads to",
        value: (l) => (l.toDevice !== undefined ? "switch" : l.toNode !== undefined ? "node" : "network"),
      },
      { key: "end", title: "Other end", value: otherEnd },
      { key: "state", title: "State", value: (l) => l.state, order: (l) => badness(l.state), cell: (l) => <StateBadge state={l.state} /> },
      { key: "vlans", title: "VLANs", value: (l) => l.vlans, numeric: true },
      { key: "marks", title: "Marks", value: (l) => l.marks.join(" ") },
    ],
    [],
  );
  return (
    <>
      <div class="block">
        <DataTable name="devices" title="Devices" columns={DEVICES} rows={devices} rowKey={(d) => d.name} sort="state" />
      </div>
      <div class="block">
        <DataTable name="links" title="Links" columns={columns} rows={links} rowKey={(l) => l.id} sort="state" searchable />
      </div>
    </>
  );
}
