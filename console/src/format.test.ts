import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, command, countIds, duration, parts, pathOf, ranges, shell } from "./format";

test("durations have at most two units", () => {
  assert.equal(duration(412), "412 ms");
  assert.equal(duration(1500), "1.5 s");
  assert.equal(duration(125_000), "2 min 5 s");
  assert.equal(duration(3 * 3_600_000 + 5 * 60_000), "3 h 5 min");
  assert.equal(duration(80 * 3_600_000), "3 d");
  assert.equal(duration(-5), "0 ms");
  assert.equal(ago(59_000), "59 s");
});

test("sets of VLAN IDs are counted", () => {
  assert.deepEqual(ranges("10-20,30"), [[10, 20], [30, 30]]);
  assert.equal(countIds("10-20,30"), 12);
  assert.equal(countIds(""), 0);
});

test("names become paths, and no name leaves its part", () => {
  assert.deepEqual(parts("L2Service/net-100"), { kind: "L2Service", name: "net-100" });
  assert.deepEqual(parts("L2ServiceAttachment/cnf-a/oam"), { kind: "L2ServiceAttachment", namespace: "cnf-a", name: "oam" });
  assert.equal(pathOf("PodNetwork/ns/<b>?#"), "/path/PodNetwork/ns/%3Cb%3E%3F%23");
});

test("words of commands are quoted where a shell needs it", () => {
  assert.equal(shell("l2sa/oam"), "l2sa/oam");
  assert.equal(shell("a b"), "'a b'");
  assert.equal(shell("it's $(x)"), "'it'\\''s $(x)'");
  assert.equal(command(["eno", "status", "", "x;y"], "--context c"), "eno status 'x;y' --context c");
});
