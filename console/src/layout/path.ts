// The drawing of a path: which hops are drawn as one, where each card is, and how the links run.
import type { Hop, PathLink, State, Tier } from "../api";
import { natural } from "../format";
import { badness, worst } from "../state";

/** The tiers, from left to right. `none` says why a tier may be empty. */
export const TIERS: readonly { tier: Tier; title: string; one: string; more: string; none: string }[] = [
  { tier: "pods", title: "Pods", one: "pod", more: "pods", none: "no pod uses it" },
  { tier: "interfaces", title: "Interfaces", one: "interface", more: "interfaces", none: "no interface in a pod" },
  { tier: "bridges", title: "Bridges", one: "bridge", more: "bridges", none: "no bridge of a node" },
  { tier: "nics", title: "Node NICs", one: "NIC", more: "NICs", none: "no NIC of a node" },
  { tier: "leaves", title: "Leaf ports", one: "port", more: "ports", none: "no switch port" },
  { tier: "spines", title: "Spines", one: "spine", more: "spines", none: "it crosses no spine" },
  { tier: "gateways", title: "Gateway", one: "gateway", more: "gateways", none: "it leads to no gateway" },
];

const place = new Map<Tier, number>(TIERS.map((t, i) => [t.tier, i]));

/** Hops of a workload are drawn as one from this many on. */
const GROUP = 5;
/** Other tiers are folded from this many cards on. */
const CROWD = 13;
/** An expanded tier or group shows so many cards at most. */
export const MOST = 60;

/** One card of the drawing. */
export type Card =
  | { kind: "hop"; id: string; tier: Tier; hop: Hop; state: State; hops: Hop[] }
  /** Several hops as one; `key` expands it. */
  | { kind: "fold"; id: string; tier: Tier; key: string; title: string; state: State; hops: Hop[]; counts: [State, number][] }
  /** The head of an expanded group; `key` collapses it. `hops` are those that are not drawn. */
  | { kind: "head"; id: string; tier: Tier; key: string; title: string; state: State; hops: Hop[]; total: number };

function fold(tier: Tier, key: string, title: string, hops: Hop[]): Card {
  const counts = new Map<State, number>();
  for (const h of hops) counts.set(h.state, (counts.get(h.state) ?? 0) + 1);
  return {
    kind: "fold",
    id: `fold ${key}`,
    tier,
    key,
    title,
    state: worst(counts.keys()),
    hops,
    counts: [...counts].sort((a, b) => badness(a[0]) - badness(b[0])),
  };
}

const single = (hop: Hop): Card => ({ kind: "hop", id: hop.id, tier: hop.tier, hop, state: hop.state, hops: [hop] });

function byName(a: Hop, b: Hop): number {
  return natural(a.group, b.group) || natural(a.detail ?? "", b.detail ?? "") || natural(a.label, b.label);
}

/** The worst first, then by name. */
const byState = (a: Hop, b: Hop): number => badness(a.state) - badness(b.state) || byName(a, b);

/** An expanded group: its head, and its hops; if they are too many, the worst of them. */
function expanded(tier: Tier, key: string, title: string, hops: Hop[]): Card[] {
  const shown = hops.length > MOST ? [...hops].sort(byState).slice(0, MOST) : hops;
  const drawn = new Set(shown);
  const rest = hops.filter((h) => !drawn.has(h));
  const state = worst(rest.map((h) => h.state));
  return [
    { kind: "head", id: `head ${key}`, tier, key, title, state, hops: rest, total: hops.length },
    ...shown.map(single),
  ];
}

/** The cards of one tier. `open` has the keys of what is expanded. */
export function cardsOf(tier: Tier, all: Hop[], open: ReadonlySet<string>): Card[] {
  const hops = [...all].sort(byName);
  const workloads = tier === "pods" || tier === "interfaces";
  if (!workloads && hops.length < CROWD) return hops.map(single);
  const groups = new Map<string, Hop[]>();
  for (const h of hops) {
    const group = groups.get(h.group);
    if (group) group.push(h);
    else groups.set(h.group, [h]);
  }
  const least = workloads ? GROUP : 2;
  const cards: Card[] = [];
  for (const [title, group] of groups) {
    const key = `${tier}:${title}`;
    if (group.length < least) cards.push(...group.map(single));
    else if (open.has(key)) cards.push(...expanded(tier, key, title, group));
    else cards.push(fold(tier, key, title, group));
  }
  if (cards.length < CROWD || cards.some((c) => c.kind === "head")) return cards;
  const key = `${tier}:`;
  if (open.has(key)) return expanded(tier, key, "", hops);
  // Too many cards are left: the worst stay, the others become one.
  const order = [...cards].sort((a, b) => badness(a.state) - badness(b.state));
  const kept = new Set(order.slice(0, CROWD - 2).filter((c) => c.state !== "confirmed"));
  const rest = cards.filter((c) => !kept.has(c)).flatMap((c) => c.hops);
  return [...cards.filter((c) => kept.has(c)), fold(tier, key, kept.size > 0 ? "others" : "", rest)];
}

export interface Placed {
  card: Card;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Column {
  tier: Tier;
  x: number;
  width: number;
  empty: boolean;
  state: State;
  total: number;
  /** How many hops are not confirmed, and how many of them have the worst state. */
  open: number;
  worst: number;
}

export interface Line {
  id: string;
  from: string;
  to: string;
  state: State;
  /** How many links it stands for. */
  count: number;
  d: string;
  /** Its middle, where a broken link is marked. */
  mid: [number, number];
}

export interface Drawing {
  width: number;
  height: number;
  columns: Column[];
  cards: Placed[];
  lines: Line[];
}

const SLIM = 38;
const ROW_GAP = 10;
const NARROW = 128;
const WIDE = 320;

/** How many lines a text fills, at most `most`. */
const linesOf = (text: string, perLine: number, most: number): number =>
  Math.min(most, Math.max(1, Math.ceil(text.length / perLine)));

/** How many characters of the small monospaced font a line of a card has. */
export const monoPerLine = (width: number): number => Math.max(8, Math.floor((width - 20) / 6.35));

/** The parts of a card's height, for the drawing and the card itself. */
export function heightOf(card: Card, width: number): number {
  const small = Math.max(8, Math.floor((width - 21) / 6.4));
  const large = Math.max(8, Math.floor((width - 21) / 8));
  const mono = monoPerLine(width);
  const message = (text: string | undefined, state: State) =>
    text && state !== "confirmed" ? 6 + 15 * linesOf(text, small - 2, state === "waiting" || state === "unknown" ? 3 : 5) : 0;
  switch (card.kind) {
    case "head":
      return 30;
    case "fold":
      return 22 + 18 + 16 * linesOf(card.title || " ", small, 2) + 16 * card.counts.length + message(worstMessage(card), card.state) + 12;
    case "hop": {
      const { hop } = card;
      const meta = metaOf(hop, mono);
      return (
        20 +
        18 * linesOf(hop.label, large, 2) +
        (hop.detail ? 16 * linesOf(hop.detail, small, 2) : 0) +
        meta.reduce((sum, m) => sum + 15 * linesOf(m, mono, 2), meta.length > 0 ? 4 : 0) +
        message(hop.message, hop.state) +
        14
      );
    }
  }
}

/** The message of the worst hop of a card. */
export function worstMessage(card: Card): string | undefined {
  if (card.kind === "hop") return card.hop.message;
  let found: Hop | undefined;
  for (const h of card.hops) if (h.message && (!found || badness(h.state) < badness(found.state))) found = h;
  return found && found.state !== "confirmed" ? found.message : undefined;
}

/** The small lines of a hop: VLANs, MTU, addresses. VLANs and MTU share a line of `perLine` characters if they fit. */
export function metaOf(hop: Hop, perLine = 24): string[] {
  const out = [hop.vlans ? `VLAN ${hop.vlans}` : "", hop.mtu ? `MTU ${hop.mtu}` : ""].filter(Boolean);
  const joined = out.join("  ");
  if (out.length === 2 && joined.length <= perLine) out.splice(0, 2, joined);
  const addresses = hop.addresses ?? [];
  out.push(...addresses.slice(0, 2));
  if (addresses.length > 2) out.push(`and ${addresses.length - 2} more`);
  return out;
}

/** Places the cards in columns of the given total width, and routes the links between them. */
export function layout(hops: Hop[], links: PathLink[], open: ReadonlySet<string>, width: number): Drawing {
  const byTier = new Map<Tier, Hop[]>();
  for (const h of hops) {
    const list = byTier.get(h.tier);
    if (list) list.push(h);
    else byTier.set(h.tier, [h]);
  }
  const slim = TIERS.filter((t) => !byTier.has(t.tier)).length;
  const full = TIERS.length - slim;
  const per = Math.max((width - slim * SLIM) / Math.max(full, 1), NARROW + 30);
  const cardWidth = Math.round(Math.min(WIDE, Math.max(NARROW, per * 0.78)));
  const columns: Column[] = [];
  const inColumn: Card[][] = [];
  let x = 0;
  for (const { tier } of TIERS) {
    const list = byTier.get(tier) ?? [];
    const empty = list.length === 0;
    const w = empty ? SLIM : per;
    const state = worst(list.map((h) => h.state));
    columns.push({
      tier,
      x: empty ? x + 3 : x + (per - cardWidth) / 2,
      width: empty ? SLIM - 6 : cardWidth,
      empty,
      state,
      total: list.length,
      open: list.filter((h) => h.state !== "confirmed").length,
      worst: list.filter((h) => h.state === state).length,
    });
    inColumn.push(cardsOf(tier, list, open));
    x += w;
  }
  const joined = joinLinks(links, inColumn);
  order(inColumn, joined);

  const heights = inColumn.map((cards) =>
    cards.reduce((sum, c) => sum + heightOf(c, cardWidth) + ROW_GAP, cards.length > 0 ? -ROW_GAP : 0),
  );
  const tallest = Math.max(...heights, 120);
  const placed: Placed[] = [];
  const found = new Map<string, Placed>();
  inColumn.forEach((cards, i) => {
    // Small drawings are centred. In large ones all columns begin at the top, so that they are seen together.
    const column = columns[i]!;
    let y = tallest <= 640 ? (tallest - heights[i]!) / 2 : 0;
    for (const card of cards) {
      const p = { card, x: Math.round(column.x), y: Math.round(y), width: column.width, height: heightOf(card, cardWidth) };
      placed.push(p);
      found.set(card.id, p);
      y += p.height + ROW_GAP;
    }
  });
  const bands = columns.map((_, i) =>
    placed.filter((p) => place.get(p.card.tier) === i).map((p): [number, number] => [p.y, p.y + p.height]),
  );
  const lines: Line[] = [];
  for (const link of joined) {
    const a = found.get(link.from);
    const b = found.get(link.to);
    if (!a || !b) continue;
    lines.push({ ...link, ...route(a, b, columns, bands) });
  }
  // The worst are drawn last, above the others.
  lines.sort((a, b) => badness(b.state) - badness(a.state));
  return { width: Math.round(x), height: Math.round(tallest), columns, cards: placed, lines };
}

type Joined = Pick<Line, "id" | "from" | "to" | "state" | "count">;

/** Joins the links between the same two cards to one, of the worst state. */
function joinLinks(links: PathLink[], inColumn: Card[][]): Joined[] {
  const cardOf = new Map<string, Card>();
  for (const cards of inColumn) for (const c of cards) for (const h of c.hops) cardOf.set(h.id, c);
  const joined = new Map<string, Joined>();
  for (const link of links) {
    let a = cardOf.get(link.from);
    let b = cardOf.get(link.to);
    if (!a || !b || a === b) continue;
    if (place.get(a.tier)! > place.get(b.tier)!) [a, b] = [b, a];
    const id = `${a.id} ${b.id}`;
    const old = joined.get(id);
    if (old) {
      old.count += 1;
      if (badness(link.state) < badness(old.state)) old.state = link.state;
    } else joined.set(id, { id, from: a.id, to: b.id, state: link.state, count: 1 });
  }
  return [...joined.values()];
}

/** The column whose order by name holds. The other columns follow it, so that links cross little. */
const ANCHOR: Tier = "leaves";

/** Orders the cards of each column by where their neighbours are. Names decide between equals. */
function order(inColumn: Card[][], links: Joined[]): void {
  const near = new Map<string, string[]>();
  const add = (a: string, b: string) => {
    const list = near.get(a);
    if (list) list.push(b);
    else near.set(a, [b]);
  };
  for (const l of links) {
    add(l.from, l.to);
    add(l.to, l.from);
  }
  const row = new Map<string, number>();
  const columnOf = new Map<string, number>();
  inColumn.forEach((cards, i) => cards.forEach((c, at) => {
    row.set(c.id, (at + 0.5) / cards.length);
    columnOf.set(c.id, i);
  }));
  const sweep = (i: number, beside: (column: number) => boolean) => {
    const cards = inColumn[i]!;
    // An expanded group stays below its head.
    if (cards.some((c) => c.kind === "head")) return;
    const weight = new Map<string, number>();
    for (const c of cards) {
      const rows = (near.get(c.id) ?? []).filter((id) => beside(columnOf.get(id)!)).map((id) => row.get(id)!);
      weight.set(c.id, rows.length > 0 ? rows.reduce((a, b) => a + b, 0) / rows.length : row.get(c.id)!);
    }
    // Array.sort is stable, so equal weights keep the order by name.
    cards.sort((a, b) => weight.get(a.id)! - weight.get(b.id)!);
    cards.forEach((c, at) => row.set(c.id, (at + 0.5) / cards.length));
  };
  const anchor = place.get(ANCHOR)!;
  for (let i = anchor + 1; i < inColumn.length; i++) sweep(i, (column) => column < i);
  for (let i = anchor - 1; i >= 0; i--) sweep(i, (column) => column > i);
}

/** The curve between two cards; it goes around the cards of the columns between them. */
function route(a: Placed, b: Placed, columns: Column[], bands: [number, number][][]): { d: string; mid: [number, number] } {
  const from = place.get(a.card.tier)!;
  const to = place.get(b.card.tier)!;
  const ay = a.y + a.height / 2;
  const by = b.y + b.height / 2;
  if (from === to) {
    const x = a.x + a.width;
    return { d: `M${x} ${ay}C${x + 24} ${ay} ${x + 24} ${by} ${x} ${by}`, mid: [x + 18, (ay + by) / 2] };
  }
  const points: [number, number][] = [[a.x + a.width, ay]];
  for (let i = from + 1; i < to; i++) {
    const column = columns[i]!;
    if (column.empty) continue;
    const wish = ay + ((by - ay) * (i - from)) / (to - from);
    const y = freeRow(wish, bands[i]!);
    points.push([column.x - 10, y], [column.x + column.width + 10, y]);
  }
  points.push([b.x, by]);
  let d = `M${points[0]![0]} ${points[0]![1]}`;
  for (let i = 1; i < points.length; i++) {
    const [px, py] = points[i - 1]!;
    const [x, y] = points[i]!;
    const bend = (x - px) / 2;
    d += py === y ? `L${x} ${y}` : `C${px + bend} ${py} ${x - bend} ${y} ${x} ${y}`;
  }
  const [p, q] = [points[0]!, points[1]!];
  return { d, mid: [(p[0] + q[0]) / 2, (p[1] + q[1]) / 2] };
}

/** The row nearest to a wish that no band covers. */
export function freeRow(wish: number, bands: [number, number][]): number {
  const margin = 5;
  const inside = bands.find(([top, bottom]) => wish > top - margin && wish < bottom + margin);
  if (!inside) return wish;
  const candidates = bands.flatMap(([top, bottom]) => [top - margin, bottom + margin]);
  const free = candidates.filter((y) => !bands.some(([top, bottom]) => y > top - margin + 0.1 && y < bottom + margin - 0.1));
  return free.reduce((best, y) => (Math.abs(y - wish) < Math.abs(best - wish) ? y : best), free[0] ?? wish);
}
