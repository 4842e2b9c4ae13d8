import assert from "node:assert/strict";
import { test } from "node:test";
import type { NotReady } from "./api";
import { byCause } from "./causes";

const row = (object: string, ...devices: string[]) => ({ object, devices }) as NotReady;
const shown = (rows: NotReady[]) => byCause(rows).map((c) => [c.devices.join(), c.rows.map((r) => r.object)]);

test("one dead switch is one cause, with the switch first and its objects below", () => {
  const services = Array.from({ length: 13 }, (_, i) => row(`L2Service/s${i}`, "leaf1"));
  const rows = [...services, row("FabricDevice/leaf1", "leaf1")];
  const names = services.map((s) => s.object);
  assert.deepEqual(shown(rows), [["leaf1", ["FabricDevice/leaf1", ...names]]]);
});

test("objects without a device, and those behind other devices, have causes of their own", () => {
  const rows = [row("L2Service/a"), row("L2Service/b", "leaf1", "leaf2"), row("L2Service/c"), row("L2Service/d", "leaf1")];
  assert.deepEqual(shown(rows), [
    ["", ["L2Service/a"]],
    ["leaf1,leaf2", ["L2Service/b"]],
    ["", ["L2Service/c"]],
    ["leaf1", ["L2Service/d"]],
  ]);
  assert.deepEqual(byCause([]), []);
});
