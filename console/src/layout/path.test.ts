import assert from "node:assert/strict";
import { test } from "node:test";
import type { Hop, PathLink, State, Tier } from "../api";
import { cardsOf, freeRow, layout, MOST, worstMessage } from "./path";

const none: ReadonlySet<string> = new Set();

const hop = (tier: Tier, id: string, group: string, state: State = "confirmed", message?: string): Hop => ({
  id,
  tier,
  label: id,
  group,
  state,
  ...(message === undefined ? {} : { message }),
});

const pods = (n: number, group = "Deployment/a/b"): Hop[] => Array.from({ length: n }, (_, i) => hop("pods", `p${i}`, group));

test("a workload of more than four pods is one card with the worst state", () => {
  assert.equal(cardsOf("pods", pods(4), none).length, 4);
  const many = pods(7);
  many[3] = hop("pods", "p3", "Deployment/a/b", "waiting", "waits for the network");
  const [card, ...rest] = cardsOf("pods", many, none);
  assert.equal(rest.length, 0);
  assert(card?.kind === "fold");
  assert.equal(card.state, "waiting");
  assert.deepEqual(card.counts, [["waiting", 1], ["confirmed", 6]]);
  assert.equal(worstMessage(card), "waits for the network");
});

test("an expanded workload shows its head and its pods, the worst first if they are too many", () => {
  const key = "pods:Deployment/a/b";
  const cards = cardsOf("pods", pods(7), new Set([key]));
  assert.equal(cards.length, 8);
  assert.equal(cards[0]?.kind, "head");
  const many = pods(200);
  many[199] = hop("pods", "p199", "Deployment/a/b", "refused");
  const cut = cardsOf("pods", many, new Set([key]));
  assert.equal(cut.length, MOST + 1);
  assert(cut.some((c) => c.id === "p199"), "the refused pod is shown");
});

test("a crowded tier keeps what is not confirmed and folds the rest", () => {
  const bridges = Array.from({ length: 480 }, (_, i) => hop("bridges", `b${i}`, `node${i}`));
  bridges[300] = hop("bridges", "b300", "node300", "refused");
  const cards = cardsOf("bridges", bridges, none);
  assert.deepEqual(cards.map((c) => c.kind), ["hop", "fold"]);
  assert.equal(cards[0]?.id, "b300");
  assert.equal(cards[1]?.hops.length, 479);
});

test("ports of a crowded tier are folded by switch", () => {
  const ports = ["leaf1", "leaf2"].flatMap((leaf) =>
    Array.from({ length: 10 }, (_, i) => hop("leaves", `${leaf}:${i}`, leaf)),
  );
  assert.deepEqual(
    cardsOf("leaves", ports, none).map((c) => c.kind === "fold" && c.title),
    ["leaf1", "leaf2"],
  );
});

test("cards stand in the column of their tier and do not overlap", () => {
  const hops = [...pods(3), hop("bridges", "b", "n"), hop("leaves", "l1", "leaf1"), hop("leaves", "l2", "leaf1"), hop("gateways", "g", "g")];
  const links: PathLink[] = [
    { from: "p0", to: "b", state: "confirmed" },
    { from: "b", to: "l1", state: "refused" },
    { from: "g", to: "l2", state: "confirmed" },
  ];
  const drawing = layout(hops, links, none, 1200);
  assert.equal(drawing.columns.filter((c) => c.empty).length, 3);
  for (const a of drawing.cards)
    for (const b of drawing.cards)
      if (a !== b && a.x === b.x) assert(a.y + a.height <= b.y || b.y + b.height <= a.y, `${a.card.id} and ${b.card.id}`);
  assert.equal(drawing.lines.length, 3);
  assert.equal(drawing.lines.at(-1)?.state, "refused", "the worst is drawn on top");
  const back = drawing.lines.find((l) => l.to === "g");
  assert.equal(back?.from, "l2", "links go from left to right");
});

test("the same hops in another order give the same drawing", () => {
  const hops = [...pods(3), hop("bridges", "b1", "n1"), hop("bridges", "b2", "n2")];
  const links: PathLink[] = [{ from: "p0", to: "b2", state: "confirmed" }, { from: "p1", to: "b1", state: "confirmed" }];
  const a = layout(hops, links, none, 1200);
  const b = layout([...hops].reverse(), links, none, 1200);
  assert.deepEqual(
    a.cards.map((c) => [c.card.id, c.x, c.y]),
    b.cards.map((c) => [c.card.id, c.x, c.y]),
  );
});

test("links between groups are joined to one of the worst state", () => {
  const hops = [...pods(6), hop("bridges", "b", "n")];
  const links = hops.slice(0, 6).map((h, i): PathLink => ({ from: h.id, to: "b", state: i === 2 ? "waiting" : "confirmed" }));
  const { lines } = layout(hops, links, none, 1200);
  assert.equal(lines.length, 1);
  assert.equal(lines[0]?.count, 6);
  assert.equal(lines[0]?.state, "waiting");
});

test("a line that passes a column takes the nearest free row", () => {
  assert.equal(freeRow(50, [[100, 200]]), 50);
  assert.equal(freeRow(190, [[100, 200]]), 205);
  assert.equal(freeRow(104, [[100, 200], [206, 300]]), 95);
});
