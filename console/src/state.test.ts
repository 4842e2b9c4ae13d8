import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProbeResult } from "./api";
import { toneOfOutcome } from "./state";

test("an outcome that must not be is bad, and one that is not known is nothing", () => {
  const bad: ProbeResult["outcome"][] = ["lost", "silent", "too-big", "leaking"];
  for (const outcome of bad) assert.equal(toneOfOutcome(outcome), "bad", outcome);
  for (const outcome of ["passed", "answered", "isolated"] as const) assert.equal(toneOfOutcome(outcome), "good", outcome);
  assert.equal(toneOfOutcome("unasked"), "wait");
  assert.equal(toneOfOutcome("new" as ProbeResult["outcome"]), "none");
});
