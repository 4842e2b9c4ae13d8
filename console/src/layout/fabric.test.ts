import assert from "node:assert/strict";
import { test } from "node:test";
import type { Fabric, FabricLink } from "../api";
import { layoutFabric, nodeStates, orthogonal, otherEnd, sameShape, unitsOf } from "./fabric";

const none: ReadonlySet<string> = new Set();

/** Pairs of leaves with nodes at both, below some spines. */
function fabric(pairs: number, nodesEach: number, spines: number): Fabric {
  const out: Fabric = { devices: [], nodes: [], networks: ["dc-gw"], links: [], missing: [] };
  const link = (device: string, port: string, to: Partial<FabricLink>): void => {
    out.links.push({ id: `${device}:${port}`, device, port, state: "confirmed", vlans: 1, marks: [], ...to });
  };
  for (let s = 1; s <= spines; s++)
    out.devices.push({ name: `spine${s}`, level: 1, driver: "netconf", state: "confirmed", vlans: 1, marks: [] });
  for (let l = 1; l <= pairs * 2; l++) {
    const leaf = `leaf${l}`;
    out.devices.push({ name: leaf, level: 0, driver: "netconf", state: "confirmed", vlans: 1, marks: [] });
    for (let s = 1; s <= spines; s++) link(leaf, `up${s}`, { toDevice: `spine${s}`, toPort: `down${l}` });
  }
  for (let p = 0; p < pairs; p++)
    for (let n = 0; n < nodesEach; n++) {
      const node = `node${p}-${n}`;
      out.nodes.push(node);
      link(`leaf${p * 2 + 1}`, `e${n}`, { toNode: node, toInterface: "eth1" });
      link(`leaf${p * 2 + 2}`, `e${n}`, { toNode: node, toInterface: "eth2" });
    }
  link("leaf1", "gw", { toNetwork: "dc-gw" });
  return out;
}

test("leaves that share nodes are one unit", () => {
  const units = unitsOf(fabric(3, 4, 2));
  assert.deepEqual(units.map((u) => u.leaves), [["leaf1", "leaf2"], ["leaf3", "leaf4"], ["leaf5", "leaf6"]]);
  assert.equal(units[1]?.nodes.length, 4);
});

test("a node without a leaf is still drawn", () => {
  const f = fabric(1, 2, 1);
  f.nodes.push("lonely");
  const units = unitsOf(f);
  assert.deepEqual(units.at(-1), { key: "", leaves: [], nodes: ["lonely"] });
});

test("boxes of a large fabric do not overlap, and stay in the width", () => {
  for (const width of [900, 1240, 3800]) {
    const f = fabric(28, 17, 8);
    const d = layoutFabric(f, new Set(["leaf3"]), width);
    const boxes = [...d.devices.values(), ...d.networks.values(), ...d.units];
    assert.equal(d.devices.size, 64);
    for (const a of boxes) {
      assert(a.x >= 0 && a.x + a.width <= width, `a box at ${a.x} in ${width}`);
      for (const b of boxes)
        assert(
          a === b || a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y,
          `boxes at ${a.x},${a.y} and ${b.x},${b.y}`,
        );
    }
    assert.equal(d.units.find((u) => u.open)?.chips.length, 17);
  }
});

test("each link is in exactly one line", () => {
  const f = fabric(28, 17, 8);
  const { lines } = layoutFabric(f, none, 1240);
  const all = lines.flatMap((l) => l.links).sort((a, b) => a - b);
  assert.deepEqual(all, f.links.map((_, i) => i));
  assert.equal(lines.length, 56 * 8 + 56 + 1, "links to nodes are one line per leaf");
});

test("few nodes are drawn one by one, with a line for each link", () => {
  const f = fabric(1, 4, 2);
  const d = layoutFabric(f, none, 1240);
  assert.equal(d.units[0]?.chips.length, 4);
  assert.equal(d.lines.length, f.links.length);
});

test("a change of states leaves the shape, a new link does not", () => {
  const [a, b] = [fabric(2, 3, 2), fabric(2, 3, 2)];
  b.links[0]!.state = "refused";
  assert(sameShape(a, b));
  b.links.pop();
  assert(!sameShape(a, b));
});

test("a node has the worst state of its links", () => {
  const f = fabric(1, 1, 1);
  f.links.find((l) => l.toNode)!.state = "refused";
  assert.equal(nodeStates(f.links).get("node0-0"), "refused");
});

test("ends and lines are written out", () => {
  const f = fabric(1, 1, 1);
  assert.equal(otherEnd(f.links[0]!), "spine1 down1");
  assert.equal(orthogonal([[0, 0], [0, 20], [20, 20]]), "M0 0L0 14Q0 20 6 20L20 20");
});
