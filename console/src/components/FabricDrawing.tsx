import { useMemo, useRef } from "preact/hooks";
import type { Fabric, FabricDevice, FabricLink, Mark, State, VlanTree } from "../api";
import { many } from "../format";
import { layoutFabric, MOST_CHIPS, nodeStates, otherEnd, sameShape, type Box, type FabricDrawing as Drawing, type FabricLine, type NodesBox } from "../layout/fabric";
import { badness, toneOfState, worst } from "../state";
import { Icon } from "./Status";
import { useWidth } from "./size";

/** What is selected in the fabric. */
export interface Selection {
  device?: string;
  node?: string;
  network?: string;
  link?: string;
}

/** What a filter keeps; the rest is faded. */
export type Keep = (thing: { state: State; marks: Mark[] }) => boolean;

/** From so many links on, those that are confirmed are drawn as one shape, and can be chosen only in panels and the table. */
const MANY = 150;

export const elementId = (kind: string, name: string): string => `${kind} ${name}`.replaceAll(" ", "\u00a0");

/** What one link is, in words. */
export const linkName = (l: FabricLink): string => `${l.device} ${l.port} – ${otherEnd(l)}`;

const LETTER: Record<Mark, string> = { foreign: "F", drift: "D", open: "O" };
const MEANS: Record<Mark, string> = {
  foreign: "carries VLANs of others",
  drift: "someone changed what ENO owns",
  open: "a trunk without a VLAN list",
};

export function Marks({ marks }: { marks: Mark[] }) {
  return (
    <>
      {marks.map((m) => (
        <abbr key={m} class={`mark mark-${m}`} title={`${m}: ${MEANS[m]}`}>
          {LETTER[m]}
        </abbr>
      ))}
    </>
  );
}

/** Explains the letters of marks. */
export function Legend() {
  return (
    <p class="legend">
      {(Object.keys(LETTER) as Mark[]).map((m) => (
        <span key={m}>
          <span class={`mark mark-${m}`}>{LETTER[m]}</span> {m}: {MEANS[m]}
        </span>
      ))}
    </p>
  );
}

/** The fabric as boxes and lines. */
export function FabricDrawing(props: {
  fabric: Fabric;
  open: ReadonlySet<string>;
  toggle: (unit: string) => void;
  selection: Selection;
  select: (selection: Selection) => void;
  keep: Keep | undefined;
  tree: VlanTree | undefined;
}) {
  const [ref, width] = useWidth<HTMLDivElement>();
  const { fabric, open } = props;
  // An update of states leaves the boxes where they are.
  const shape = useRef(fabric);
  if (shape.current !== fabric && !sameShape(shape.current, fabric)) shape.current = fabric;
  const drawing = useMemo(
    () => (width > 0 ? layoutFabric(shape.current, open, Math.max(width - 24, 560)) : undefined),
    [shape.current, open, width],
  );
  return (
    <div class="fabric-scroll" ref={ref} tabIndex={0} role="group" aria-label="Drawing of the fabric">
      {drawing && <Drawn drawing={drawing} {...props} />}
    </div>
  );
}

type Props = Parameters<typeof FabricDrawing>[0];

function Drawn(props: Props & { drawing: Drawing }) {
  const { drawing, fabric, tree, keep, selection, select } = props;
  const states = useMemo(() => nodeStates(fabric.links), [fabric]);
  const inTree = useMemo(() => treeOf(fabric, tree), [fabric, tree]);
  const kept = useMemo(() => keep && nodesOf(fabric.links.filter(keep)), [fabric, keep]);
  const fadedDevice = (d: FabricDevice) => (inTree ? !inTree.devices.has(d.name) : keep ? !keep(d) : false);
  const leaf = (d: FabricDevice) => d.level === 0;
  const row = (title: string, list: FabricDevice[]) =>
    list.length > 0 && (
      <ul aria-label={`${title}, ${list.length}`}>
        {list.map((d) => {
          const box = drawing.devices.get(d.name);
          return (
            box && (
              <li key={d.name}>
                <DeviceBox
                  device={d}
                  box={box}
                  state={inTree?.devices.get(d.name) ?? d.state}
                  faded={fadedDevice(d)}
                  selected={selection.device === d.name}
                  press={() => select({ device: d.name })}
                />
              </li>
            )
          );
        })}
      </ul>
    );
  return (
    <div
      class={`fabric${inTree || keep ? " filtered" : ""}`}
      style={{ width: `${drawing.width}px`, height: `${drawing.height}px` }}
    >
      <Lines {...props} inTree={inTree} />
      {row("Upper switches", fabric.devices.filter((d) => !leaf(d)))}
      {row("Leaves", fabric.devices.filter(leaf))}
      <ul aria-label="Nodes">
        {drawing.units.map((u) => (
          <li key={u.unit.key}>
            <Nodes box={u} states={states} inTree={inTree?.nodes} kept={kept} {...props} />
          </li>
        ))}
      </ul>
      <ul aria-label="Networks outside the fabric">
        {[...drawing.networks].map(([name, box]) => (
          <li key={name}>
            <button
              type="button"
              id={elementId("network", name)}
              class={`network-box${inTree && !inTree.networks.has(name) ? " faded" : ""}${selection.network === name ? " selected" : ""}`}
              style={place(box)}
              aria-pressed={selection.network === name}
              onClick={() => select({ network: name })}
            >
              <bdi class="box-name">{name}</bdi>
              <span class="muted">gateway</span>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The nodes at the ends of links. */
const nodesOf = (links: FabricLink[]): Set<string> => new Set(links.flatMap((l) => l.toNode ?? []));

interface InTree {
  devices: Map<string, State>;
  links: Map<string, State>;
  nodes: Map<string, State>;
  networks: Set<string>;
}

/** Where a VLAN is, by name. */
function treeOf(fabric: Fabric, tree: VlanTree | undefined): InTree | undefined {
  if (!tree) return undefined;
  const links = new Map(tree.links.map((l) => [l.id, l.state]));
  const nodes = new Map<string, State>();
  const networks = new Set<string>();
  for (const l of fabric.links) {
    const state = links.get(l.id);
    if (state === undefined) continue;
    if (l.toNode !== undefined) nodes.set(l.toNode, worst([state, nodes.get(l.toNode) ?? "confirmed"]));
    if (l.toNetwork !== undefined) networks.add(l.toNetwork);
  }
  return { devices: new Map(tree.devices.map((d) => [d.name, d.state])), links, nodes, networks };
}

const place = (b: Box) => ({ left: `${b.x}px`, top: `${b.y}px`, width: `${b.width}px`, height: `${b.height}px` });

/** The lines: merged where there are many, and on top those that matter now. */
function Lines(props: Props & { drawing: Drawing; inTree: InTree | undefined }) {
  const { drawing, inTree, keep, selection, select, fabric } = props;
  const merge = drawing.lines.length > MANY;
  const touches = (links: FabricLink[]) =>
    links.some(
      (l) =>
        (selection.device !== undefined && (l.device === selection.device || l.toDevice === selection.device)) ||
        (selection.node !== undefined && l.toNode === selection.node) ||
        (selection.network !== undefined && l.toNetwork === selection.network) ||
        (selection.link !== undefined && l.id === selection.link),
    );
  const back = new Map<string, string>();
  const single: { line: FabricLine; links: FabricLink[]; state: State; chosen: boolean }[] = [];
  for (const line of drawing.lines) {
    const links = line.links.map((at) => fabric.links[at]!);
    const state = worst(links.map((l) => l.state));
    const chosen = touches(links);
    if (inTree) {
      const states = links.map((l) => inTree.links.get(l.id)).filter((s) => s !== undefined);
      if (states.length > 0) single.push({ line, links, state: worst(states), chosen });
      else back.set("faded", (back.get("faded") ?? "") + line.d);
    } else if (keep && !links.some(keep) && !chosen) {
      back.set("faded", (back.get("faded") ?? "") + line.d);
    } else if (merge && !chosen && !keep && state === "confirmed") {
      const name = line.up ? "confirmed up" : "confirmed";
      back.set(name, (back.get(name) ?? "") + line.d);
    } else single.push({ line, links, state, chosen });
  }
  single.sort((a, b) => Number(a.chosen) - Number(b.chosen) || badness(b.state) - badness(a.state));
  const pressable = single.length <= MANY * 2;
  const press = (links: FabricLink[]) => {
    const [first] = links;
    if (links.length === 1 && first) select({ link: first.id });
    else if (first) select({ device: first.device });
  };
  return (
    <svg class="fabric-lines" width={drawing.width} height={drawing.height} role="group" aria-label="Links">
      {[...back].map(([name, d]) => (
        <path key={name} class={`fabric-link merged ${name}`} d={d} />
      ))}
      {single.map(({ line, links, state, chosen }) => {
        const [first] = links;
        const name =
          links.length === 1 && first
            ? `Link ${linkName(first)}, ${state}, ${many(first.vlans, "VLAN")}${first.marks.length > 0 ? `, ${first.marks.join(", ")}` : ""}`
            : `${many(links.length, "link")} of ${first?.device} to nodes, ${state}`;
        return (
          <g
            key={line.id}
            {...(pressable
              ? {
                  id: elementId("link", line.id),
                  role: "button",
                  tabindex: 0,
                  "aria-label": name,
                  class: "fabric-press",
                  onClick: () => press(links),
                  onKeyDown: (e: KeyboardEvent) => {
                    if (e.key !== "Enter" && e.key !== " ") return;
                    e.preventDefault();
                    press(links);
                  },
                }
              : { "aria-hidden": true })}
          >
            {pressable && <title>{name}</title>}
            {pressable && <path class="hit" d={line.d} />}
            <path class={`fabric-link tone-${toneOfState(state)}${chosen ? " chosen" : ""}${inTree ? " tree" : ""}`} d={line.d} />
          </g>
        );
      })}
    </svg>
  );
}

function DeviceBox(props: {
  device: FabricDevice;
  box: Box;
  state: State;
  faded: boolean;
  selected: boolean;
  press: () => void;
}) {
  const { device: d, state } = props;
  const tone = toneOfState(state);
  return (
    <button
      type="button"
      id={elementId("device", d.name)}
      class={`device-box tone-${tone}${props.faded ? " faded" : ""}${props.selected ? " selected" : ""}`}
      style={place(props.box)}
      aria-pressed={props.selected}
      title={[d.name, d.message].filter(Boolean).join("\n")}
      onClick={props.press}
    >
      <bdi class="box-name">{d.name}</bdi>
      <span class="box-state">
        <Icon tone={tone} />
        {state}
      </span>
      <span class="box-line">
        <span>{d.vlans.toLocaleString("en")} VLANs</span>
        <Marks marks={d.marks} />
      </span>
    </button>
  );
}

function Nodes(
  props: Props & {
    box: NodesBox;
    states: Map<string, State>;
    inTree: Map<string, State> | undefined;
    kept: Set<string> | undefined;
  },
) {
  const { box, states, inTree, kept, selection, select, toggle } = props;
  const isFaded = (n: string): boolean => (inTree ? !inTree.has(n) : kept ? !kept.has(n) : false);
  const { unit } = box;
  const stateOf = (n: string): State => inTree?.get(n) ?? states.get(n) ?? "unknown";
  const state = worst(unit.nodes.map((n) => states.get(n) ?? "unknown"));
  const bad = unit.nodes.filter((n) => states.get(n) === state).length;
  const having = inTree ? unit.nodes.filter((n) => inTree.has(n)).length : 0;
  const tone = toneOfState(state);
  return (
    <>
      {box.foldable && (
        <button
          type="button"
          id={elementId("nodes", unit.key)}
          class={`nodes-box tone-${tone}${unit.nodes.every(isFaded) ? " faded" : ""}${box.open ? " open" : ""}`}
          style={place(box)}
          aria-expanded={box.open}
          onClick={() => toggle(unit.key)}
        >
          <span class="nodes-head">
            <span class="box-name">
              {inTree ? `${having} of ${many(unit.nodes.length, "node")}` : many(unit.nodes.length, "node")}
            </span>
            <span class="twist" aria-hidden="true">
              {box.open ? "▾" : "▸"}
            </span>
            <span class="box-state">
              <Icon tone={tone} />
              {state === "confirmed" ? state : `${bad} ${state}`}
            </span>
            {box.open && unit.nodes.length > MOST_CHIPS && <span class="muted">the first {MOST_CHIPS}</span>}
          </span>
        </button>
      )}
      {box.chips.length > 0 && (
        <ul aria-label={`Nodes at ${unit.leaves.join(" and ") || "no leaf"}`}>
          {box.chips.map((c) => {
            const own = stateOf(c.node);
            return (
              <li key={c.node}>
                <button
                  type="button"
                  id={elementId("node", c.node)}
                  class={`node-chip tone-${toneOfState(own)}${box.foldable ? "" : " large"}${isFaded(c.node) ? " faded" : ""}${selection.node === c.node ? " selected" : ""}`}
                  style={place(c)}
                  aria-pressed={selection.node === c.node}
                  title={c.node}
                  onClick={() => select({ node: c.node })}
                >
                  <Icon tone={toneOfState(own)} />
                  <bdi class="box-name">{c.node}</bdi>
                  <span class={box.foldable ? "offscreen" : "box-state"}>{own}</span>
                </button>
              </li>
            );
          })}
        </ul>
      )}
    </>
  );
}
