// The drawing of the fabric: upper switches in rows on top, below them units of one or two leaves with their nodes,
// and the networks outside at the bottom.
import type { Fabric, FabricLink, State } from "../api";
import { natural } from "../format";
import { worst } from "../state";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** One or two leaves that share nodes, and these nodes. */
export interface Unit {
  key: string;
  leaves: string[];
  nodes: string[];
}

export interface NodesBox extends Box {
  unit: Unit;
  /** The boxes of the nodes, if they are drawn one by one. */
  chips: (Box & { node: string })[];
  /** Its head can be pressed to expand or collapse it. */
  foldable: boolean;
  open: boolean;
}

export interface FabricLine {
  id: string;
  /** Where the links are in the fabric's list for which it stands; one, unless nodes are drawn as one. */
  links: number[];
  d: string;
  /** It goes up, from a leaf to a spine. */
  up: boolean;
}

export interface FabricDrawing {
  width: number;
  height: number;
  devices: Map<string, Box>;
  networks: Map<string, Box>;
  units: NodesBox[];
  lines: FabricLine[];
}

const LEAF = { width: 112, height: 60 };
const CHIP = { width: 112, height: 26 };
const CARD = { width: 112, height: 44 };
const HEAD = 46;
const GAP = 8;
const GUTTER = 30;
const CHANNEL = 26;
const BUS = 64;
/** Up to so many nodes, each is drawn by itself. */
const FEW = 16;
/** An expanded unit shows at most so many. */
export const MOST_CHIPS = 120;

/** The other end of a link, as a text. */
export function otherEnd(l: FabricLink): string {
  if (l.toDevice !== undefined) return `${l.toDevice} ${l.toPort ?? ""}`.trim();
  if (l.toNode !== undefined) return `${l.toNode} ${l.toInterface ?? ""}`.trim();
  return l.toNetwork ?? "";
}

/** Pairs the leaves that share the most nodes, and gives each node to the unit of its first leaf. */
export function unitsOf(fabric: Fabric): Unit[] {
  const leaves = fabric.devices.filter((d) => d.level === 0).map((d) => d.name).sort(natural);
  const isLeaf = new Set(leaves);
  const homes = new Map<string, string[]>(fabric.nodes.map((n) => [n, []]));
  for (const l of fabric.links) {
    if (l.toNode === undefined) continue;
    const list = homes.get(l.toNode);
    if (!list) homes.set(l.toNode, [l.device]);
    else if (!list.includes(l.device)) list.push(l.device);
  }
  const shared = new Map<string, Map<string, number>>();
  const count = (a: string, b: string) => {
    const of = shared.get(a) ?? new Map<string, number>();
    shared.set(a, of.set(b, (of.get(b) ?? 0) + 1));
  };
  for (const list of homes.values()) {
    list.sort(natural);
    for (const a of list) for (const b of list) if (a !== b && isLeaf.has(a) && isLeaf.has(b)) count(a, b);
  }
  const best = (leaf: string): string | undefined => {
    let found: string | undefined;
    let most = 0;
    for (const [other, n] of shared.get(leaf) ?? []) if (n > most) [found, most] = [other, n];
    return found;
  };
  const units: Unit[] = [];
  const unitOf = new Map<string, Unit>();
  for (const leaf of leaves) {
    if (unitOf.has(leaf)) continue;
    const other = best(leaf);
    const pair = other !== undefined && best(other) === leaf && !unitOf.has(other) ? [leaf, other] : [leaf];
    const unit: Unit = { key: leaf, leaves: pair, nodes: [] };
    units.push(unit);
    for (const each of pair) unitOf.set(each, unit);
  }
  let loose: Unit | undefined;
  for (const [node, list] of homes) {
    const home = list.find((d) => unitOf.has(d));
    if (home !== undefined) unitOf.get(home)!.nodes.push(node);
    else {
      loose ??= { key: "", leaves: [], nodes: [] };
      loose.nodes.push(node);
    }
  }
  if (loose) units.push(loose);
  for (const unit of units) unit.nodes.sort(natural);
  return units;
}

/** Places all boxes in the given width, and routes the links. `open` has the keys of expanded units. */
export function layoutFabric(fabric: Fabric, open: ReadonlySet<string>, width: number): FabricDrawing {
  const units = unitsOf(fabric);
  const few = fabric.nodes.length <= FEW;
  const devices = new Map<string, Box>();
  const networks = new Map<string, Box>();

  // The upper rows, the highest level first.
  const levels = [...new Set(fabric.devices.map((d) => d.level).filter((l) => l > 0))].sort((a, b) => b - a);
  let y = 0;
  for (const level of levels) {
    const names = fabric.devices.filter((d) => d.level === level).map((d) => d.name).sort(natural);
    const perRow = Math.max(1, Math.floor((width + GAP) / (LEAF.width + GAP)));
    for (let i = 0; i < names.length; i += perRow) {
      const row = names.slice(i, i + perRow);
      const step = Math.min(Math.max(width / row.length, LEAF.width + GAP), 280);
      const left = (width - step * row.length) / 2 + (step - LEAF.width) / 2;
      row.forEach((name, at) => devices.set(name, { x: Math.round(left + at * step), y, ...LEAF }));
      y += LEAF.height + (i + perRow < names.length ? GAP * 2 : BUS);
    }
  }
  const busY = y - BUS;

  // Units, in a grid.
  const inner = (u: Unit): number => {
    const perRow = few ? Math.min(4, Math.max(u.nodes.length, u.leaves.length)) : Math.max(2, u.leaves.length);
    return perRow * LEAF.width + (perRow - 1) * GAP;
  };
  const cell = Math.max(LEAF.width, ...units.map(inner));
  const columns = Math.max(1, Math.min(units.length, Math.floor((width - GUTTER) / (cell + GUTTER))));
  const rows = Math.ceil(units.length / columns);
  const left = Math.max(GUTTER / 2, (width - columns * (cell + GUTTER)) / 2 + GUTTER / 2);
  const boxes: NodesBox[] = [];
  /** Of each unit: where its gutters are, and the channel above it. */
  const around = new Map<string, { leftX: number; rightX: number; channelY: number; row: number }>();
  for (let row = 0; row < rows; row++) {
    const inRow = units.slice(row * columns, (row + 1) * columns);
    const channelY = y - CHANNEL / 2;
    let lowest = y + LEAF.height;
    inRow.forEach((unit, column) => {
      const x = Math.round(left + column * (cell + GUTTER));
      const leavesWidth = unit.leaves.length * LEAF.width + (unit.leaves.length - 1) * GAP;
      // Leaves of small fabrics stand above the middle of their nodes.
      const spread = few ? (cell - leavesWidth) / 2 : 0;
      unit.leaves.forEach((leaf, at) =>
        devices.set(leaf, { x: Math.round(x + spread + at * (LEAF.width + GAP)), y, ...LEAF }),
      );
      for (const leaf of unit.leaves)
        around.set(leaf, { leftX: x - GUTTER / 2, rightX: x + cell + GUTTER / 2, channelY, row });
      if (unit.nodes.length > 0) {
        const box = nodesBox(unit, x, y + LEAF.height + (few ? 70 : 18), cell, few, open.has(unit.key));
        boxes.push(box);
        lowest = Math.max(lowest, box.y + box.height);
      }
    });
    y = lowest + CHANNEL;
  }
  y += 10;

  // Networks outside.
  if (fabric.networks.length > 0) {
    y += few ? 10 : 14;
    const names = [...fabric.networks].sort(natural);
    const wide = 150;
    const perRow = Math.max(1, Math.floor((width + GAP) / (wide + GAP)));
    for (let i = 0; i < names.length; i += perRow) {
      const row = names.slice(i, i + perRow);
      const step = Math.min(Math.max(width / row.length, wide + GAP), 320);
      const from = (width - step * row.length) / 2 + (step - wide) / 2;
      row.forEach((name, at) => networks.set(name, { x: Math.round(from + at * step), y, width: wide, height: 40 }));
      y += 40 + GAP * 2;
    }
  }
  const height = Math.round(y);

  // Links. Those from a leaf to nodes that are drawn as one become one line.
  const chip = new Map<string, Box>();
  const boxOf = new Map<string, NodesBox>();
  for (const box of boxes) {
    for (const node of box.unit.nodes) boxOf.set(node, box);
    if (few) for (const c of box.chips) chip.set(c.node, c);
  }
  const joined = new Map<string, FabricLine>();
  const lines: FabricLine[] = [];
  const upper = [...devices.keys()].filter((d) => !around.has(d)).sort(natural);
  const upperIndex = new Map(upper.map((d, i) => [d, i - (upper.length - 1) / 2]));
  const starts = portPlaces(fabric.links, chip);
  fabric.links.forEach((link, index) => {
    const a = devices.get(link.device);
    if (!a) return;
    if (link.toNode !== undefined) {
      const box = boxOf.get(link.toNode);
      if (!box) return;
      const single = chip.get(link.toNode);
      const id = single ? link.id : `${link.device} ${box.unit.key}`;
      const old = joined.get(id);
      if (old) {
        old.links.push(index);
        return;
      }
      const d = single
        ? curve(bottom(a, starts.get(link.id) ?? 0), top(single))
        : box.unit.leaves.includes(link.device)
          ? `M${a.x + a.width / 2} ${a.y + a.height}V${box.y}`
          : curve(bottom(a, 0), [box.x + box.width - 12, box.y]);
      const line = { id, links: [index], d, up: false };
      joined.set(id, line);
      lines.push(line);
    } else if (link.toDevice !== undefined) {
      const b = devices.get(link.toDevice);
      if (!b) return;
      const near = around.get(link.device) ?? around.get(link.toDevice);
      const [leafBox, otherBox, otherName] = around.has(link.device)
        ? [a, b, link.toDevice]
        : [b, a, link.device];
      let d: string;
      if (around.has(link.device) && around.has(link.toDevice)) d = between(a, b);
      else if (!near || rows === 1) d = curve(top(leafBox), [otherBox.x + otherBox.width / 2, otherBox.y + otherBox.height]);
      else d = viaGutter(leafBox, otherBox, near, upperIndex.get(otherName) ?? 0, busY);
      lines.push({ id: link.id, links: [index], d, up: true });
    } else if (link.toNetwork !== undefined) {
      const b = networks.get(link.toNetwork);
      if (!b) return;
      const near = around.get(link.device);
      const x = near ? near.rightX : GUTTER / 2;
      const level = near ? a.y + a.height + 9 : a.y + a.height + BUS / 2;
      const d = orthogonal([
        [a.x + a.width - 10, a.y + a.height],
        [a.x + a.width - 10, level],
        [x, level],
        [x, b.y - 14],
        [b.x + b.width / 2, b.y - 14],
        [b.x + b.width / 2, b.y],
      ]);
      lines.push({ id: link.id, links: [index], d, up: false });
    }
  });
  return { width, height, devices, networks, units: boxes, lines };
}

function nodesBox(unit: Unit, x: number, y: number, cell: number, few: boolean, open: boolean): NodesBox {
  const size = few ? CARD : CHIP;
  const shown = few || open ? unit.nodes.slice(0, MOST_CHIPS) : [];
  const perRow = Math.max(1, Math.floor((cell + GAP) / (size.width + GAP)));
  const head = few ? 0 : HEAD;
  const pad = few ? 0 : 4;
  const wide = few || shown.length === 0 ? size.width : (cell - pad * 2 - GAP * (perRow - 1)) / perRow;
  const chips = shown.map((node, i) => {
    const row = Math.floor(i / perRow);
    // The last row of a small fabric is centred below the leaves.
    const inRow = Math.min(perRow, shown.length - row * perRow);
    const indent = few ? (cell - inRow * size.width - (inRow - 1) * GAP) / 2 : pad;
    return {
      node,
      x: Math.round(x + indent + (i % perRow) * (wide + GAP)),
      y: y + head + row * (size.height + (few ? GAP * 2 : 4)),
      width: Math.floor(wide),
      height: size.height,
    };
  });
  const rows = Math.ceil(shown.length / perRow);
  const height = head + (rows > 0 ? rows * (size.height + (few ? GAP * 2 : 4)) + pad : 0);
  return { unit, x, y, width: cell, height, chips, foldable: !few, open };
}

type Point = [number, number];

const top = (b: Box): Point => [b.x + b.width / 2, b.y];

/** Where links to single nodes begin below their switch: in the order of the nodes, so that they don't cross. */
function portPlaces(links: FabricLink[], chip: Map<string, Box>): Map<string, number> {
  const of = new Map<string, { id: string; x: number }[]>();
  for (const l of links) {
    const box = l.toNode === undefined ? undefined : chip.get(l.toNode);
    if (!box) continue;
    const list = of.get(l.device);
    if (list) list.push({ id: l.id, x: box.x });
    else of.set(l.device, [{ id: l.id, x: box.x }]);
  }
  const out = new Map<string, number>();
  for (const list of of.values()) {
    list.sort((a, b) => a.x - b.x);
    list.forEach(({ id }, i) => out.set(id, (i - (list.length - 1) / 2) * 12));
  }
  return out;
}

function bottom(b: Box, offset: number): Point {
  const most = b.width / 2 - 16;
  return [b.x + b.width / 2 + Math.max(-most, Math.min(most, offset)), b.y + b.height];
}

function curve([ax, ay]: Point, [bx, by]: Point): string {
  const bend = (by - ay) / 2;
  return `M${ax} ${ay}C${ax} ${ay + bend} ${bx} ${by - bend} ${bx} ${by}`;
}

/** A link between two leaves: straight between neighbours, else an arc above them. */
function between(a: Box, b: Box): string {
  const [l, r] = a.x <= b.x ? [a, b] : [b, a];
  if (l.y === r.y && r.x - l.x - l.width < LEAF.width) return `M${l.x + l.width} ${l.y + 14}H${r.x}`;
  const [p, q] = [top(l), top(r)];
  return `M${p[0]} ${p[1]}C${p[0]} ${p[1] - 30} ${q[0]} ${q[1] - 30} ${q[0]} ${q[1]}`;
}

/** A link from a leaf through the gutter beside its unit up to a spine. Links to different spines run side by side. */
function viaGutter(
  leaf: Box,
  spine: Box,
  near: { leftX: number; rightX: number; channelY: number; row: number },
  index: number,
  busY: number,
): string {
  const shift = Math.max(-10, Math.min(10, index * 2.4));
  const x = leaf.x + leaf.width / 2 + Math.max(-40, Math.min(40, index * 6));
  const sx = spine.x + spine.width / 2;
  const bus = busY + BUS / 2 + Math.max(-22, Math.min(22, index * 5));
  if (near.row === 0) return orthogonal([[x, leaf.y], [x, bus], [sx, bus], [sx, spine.y + spine.height]]);
  const gutter = (sx < x ? near.leftX : near.rightX) + shift;
  const channel = near.channelY + shift / 2;
  return orthogonal([
    [x, leaf.y],
    [x, channel],
    [gutter, channel],
    [gutter, bus],
    [sx, bus],
    [sx, spine.y + spine.height],
  ]);
}

/** A line of horizontal and vertical parts with round corners. */
export function orthogonal(points: Point[]): string {
  let d = `M${points[0]![0]} ${points[0]![1]}`;
  for (let i = 1; i < points.length - 1; i++) {
    const [a, b, c] = [points[i - 1]!, points[i]!, points[i + 1]!];
    const before = Math.hypot(b[0] - a[0], b[1] - a[1]);
    const after = Math.hypot(c[0] - b[0], c[1] - b[1]);
    const r = Math.min(6, before / 2, after / 2);
    if (r === 0) continue;
    const from: Point = [b[0] + ((a[0] - b[0]) / before) * r, b[1] + ((a[1] - b[1]) / before) * r];
    const to: Point = [b[0] + ((c[0] - b[0]) / after) * r, b[1] + ((c[1] - b[1]) / after) * r];
    d += `L${from[0]} ${from[1]}Q${b[0]} ${b[1]} ${to[0]} ${to[1]}`;
  }
  const last = points[points.length - 1]!;
  return `${d}L${last[0]} ${last[1]}`;
}

/** The worst state of the links of each node. */
export function nodeStates(links: FabricLink[]): Map<string, State> {
  const out = new Map<string, State>();
  for (const l of links)
    if (l.toNode !== undefined) out.set(l.toNode, worst([l.state, out.get(l.toNode) ?? "confirmed"]));
  return out;
}

/** The two have the same boxes and lines, whatever their states. */
export function sameShape(a: Fabric, b: Fabric): boolean {
  return (
    a.devices.length === b.devices.length &&
    a.links.length === b.links.length &&
    a.nodes.length === b.nodes.length &&
    a.networks.length === b.networks.length &&
    a.devices.every((d, i) => d.name === b.devices[i]!.name && d.level === b.devices[i]!.level) &&
    a.nodes.every((n, i) => n === b.nodes[i]) &&
    a.networks.every((n, i) => n === b.networks[i]) &&
    a.links.every((l, i) => {
      const m = b.links[i]!;
      return (
        l.id === m.id &&
        l.device === m.device &&
        l.toDevice === m.toDevice &&
        l.toNode === m.toNode &&
        l.toNetwork === m.toNetwork
      );
    })
  );
}
