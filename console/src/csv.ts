// CSV as RFC 4180 has it, safe to open in a spreadsheet.

/** A spreadsheet takes a cell that begins with one of these for a formula. */
const FORMULA = /^[=+\-@\t\r]/;

/** One cell: text that could be a formula is marked as text, and quotes are added where they are needed. */
export function cell(value: string | number | undefined): string {
  if (value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** A file of CSV: a head and rows, with CRLF after each. */
export function csv(head: string[], rows: Iterable<(string | number | undefined)[]>): string {
  let out = head.map(cell).join(",") + "\r\n";
  for (const row of rows) out += row.map(cell).join(",") + "\r\n";
  return out;
}
