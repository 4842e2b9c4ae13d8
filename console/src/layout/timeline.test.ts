import assert from "node:assert/strict";
import { test } from "node:test";
import type { Entry, Phase } from "../api";
import { marks, phaseAt, phaseSpans, ticks } from "./timeline";

const at = (ms: number, phase?: Phase, failed = false): Entry => ({
  at: new Date(ms).toISOString(),
  kind: phase === undefined ? "report" : "phase",
  subject: "L2Service/a",
  what: "x",
  text: "x",
  failed,
  ...(phase === undefined ? {} : { phase }),
});

test("phases hold until the next, and the last one to the end", () => {
  const entries = [at(100, "pending"), at(150), at(200, "ready"), at(300, "ready"), at(400, "error")];
  assert.deepEqual(phaseSpans(entries, 120, 500), [
    { phase: "pending", from: 120, to: 200 },
    { phase: "ready", from: 200, to: 400 },
    { phase: "error", from: 400, to: 500 },
  ]);
  assert.deepEqual(phaseSpans(entries, 0, 50), []);
});

test("the phase at a time is the last before it", () => {
  const entries = [at(100, "pending"), at(200, "ready"), at(250)];
  assert.equal(phaseAt(entries, 99), undefined);
  assert.equal(phaseAt(entries, 200)?.phase, "ready");
  assert.equal(phaseAt(entries, 999)?.phase, "ready");
});

test("entries at one place become one mark, which is a failure if one failed", () => {
  const found = marks([at(0), at(1, undefined, true), at(900), at(2000)], 0, 1000, 100);
  assert.deepEqual(found.map((m) => [m.count, m.failed]), [[2, true], [1, false]]);
});

test("labels of times are in the window and not too many", () => {
  const week = 7 * 86_400_000;
  const found = ticks(1_700_000_000_000, 1_700_000_000_000 + week, 1000);
  assert(found.length >= 5 && found.length <= 10, String(found.length));
  assert(found.every((t) => t.at >= 1_700_000_000_000 && t.at <= 1_700_000_000_000 + week));
});
