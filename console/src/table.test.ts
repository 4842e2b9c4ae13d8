import assert from "node:assert/strict";
import { test } from "node:test";
import { filtered, readSort, sorted, writeSort } from "./table";

test("texts are sorted as people read them, and absent values come last both ways", () => {
  const rows = ["node10", undefined, "node2", ""];
  assert.deepEqual(sorted(rows, (r) => r, false), ["node2", "node10", undefined, ""]);
  assert.deepEqual(sorted(rows, (r) => r, true), ["node10", "node2", undefined, ""]);
});

test("numbers are sorted by size, and equal rows keep their order", () => {
  const rows = [{ n: 10, at: 1 }, { n: 9, at: 2 }, { n: 10, at: 3 }];
  assert.deepEqual(sorted(rows, (r) => r.n, false).map((r) => r.at), [2, 1, 3]);
  assert.deepEqual(sorted(rows, (r) => r.n, true).map((r) => r.at), [1, 3, 2]);
});

test("a filter needs each of its words, in any column", () => {
  const rows = [["leaf1", "refused"], ["leaf2", "confirmed"]];
  assert.deepEqual(filtered(rows, "REFUSED leaf", (r) => r), [rows[0]]);
  assert.equal(filtered(rows, "  ", (r) => r).length, 2);
});

test("a sort survives the query string", () => {
  assert.deepEqual(readSort(writeSort({ key: "name", down: true })), { key: "name", down: true });
  assert.deepEqual(readSort("name"), { key: "name", down: false });
});
