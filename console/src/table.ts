// Sorting and filtering of tables.
import { natural } from "./format";

export type Value = string | number | undefined;

/** A sort: a column and a direction, in a query string `name` or `name-`. */
export interface Sort {
  key: string;
  down: boolean;
}

export const readSort = (text: string): Sort =>
  text.endsWith("-") ? { key: text.slice(0, -1), down: true } : { key: text, down: false };

export const writeSort = (sort: Sort): string => sort.key + (sort.down ? "-" : "");

/** Compares values: numbers by size, texts as people read them. */
function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : natural(String(a), String(b));
}

const absent = (v: Value): v is undefined | "" => v === undefined || v === "";

/** The rows in order; equal rows keep theirs. Absent values come last in both directions. */
export function sorted<R>(rows: readonly R[], value: (row: R) => Value, down: boolean): R[] {
  const keyed = rows.map((row) => ({ row, value: value(row) }));
  keyed.sort((a, b) => {
    if (absent(a.value) || absent(b.value)) return Number(absent(a.value)) - Number(absent(b.value));
    return down ? compare(b.value, a.value) : compare(a.value, b.value);
  });
  return keyed.map((k) => k.row);
}

/** The rows that have each word of a text in some of their values. */
export function filtered<R>(rows: readonly R[], text: string, values: (row: R) => Value[]): readonly R[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return rows;
  return rows.filter((row) => {
    const all = values(row).join("\n").toLowerCase();
    return words.every((w) => all.includes(w));
  });
}
