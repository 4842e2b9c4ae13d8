import assert from "node:assert/strict";
import { test } from "node:test";
import { cell, csv } from "./csv";

test("cells are quoted as RFC 4180 says", () => {
  assert.equal(cell("plain"), "plain");
  assert.equal(cell('say "yes", twice'), '"say ""yes"", twice"');
  assert.equal(cell("two\nlines"), '"two\nlines"');
  assert.equal(cell(undefined), "");
});

test("cells that a spreadsheet takes for formulas become text", () => {
  for (const start of ["=", "+", "-", "@", "\t"]) assert.equal(cell(`${start}1`), `'${start}1`);
  assert.equal(cell("\r1"), `"'\r1"`);
  assert.equal(cell('=HYPERLINK("x","y")'), `"'=HYPERLINK(""x"",""y"")"`);
  assert.equal(cell(-3), "-3", "numbers stay numbers");
});

test("each row ends with CRLF", () => {
  assert.equal(csv(["a", "b"], [[1, "x"], [2, undefined]]), "a,b\r\n1,x\r\n2,\r\n");
});
