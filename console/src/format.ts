// Texts for people: times, names of objects, commands, sets of VLAN IDs.

/** Compares texts as people read them: node2 comes before node10. */
const collator = new Intl.Collator("en", { numeric: true });
export const natural = (a: string, b: string): number => collator.compare(a, b);

/** A duration, rounded to its two largest units. */
export function duration(ms: number): string {
  if (ms < 0) ms = 0;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = Math.floor(ms / 1000);
  if (s < 10) return `${(ms / 1000).toFixed(1)} s`;
  if (s < 60) return `${s} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return s % 60 && m < 10 ? `${m} min ${s % 60} s` : `${m} min`;
  const h = Math.floor(m / 60);
  if (h < 48) return m % 60 && h < 10 ? `${h} h ${m % 60} min` : `${h} h`;
  return `${Math.floor(h / 24)} d`;
}

/** How long ago, in one unit. */
export function ago(ms: number): string {
  const s = Math.floor(ms / 1000);
  if (s < 5) return "now";
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

const two = (n: number): string => String(n).padStart(2, "0");

/** The local date and time, to the second. */
export function dateTime(at: number | string): string {
  const d = new Date(at);
  if (Number.isNaN(d.getTime())) return String(at);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${clock(d.getTime())}`;
}

/** The local time of day, to the second. */
export function clock(at: number): string {
  const d = new Date(at);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

export interface ObjectName {
  kind: string;
  namespace?: string;
  name: string;
}

/** Takes `KIND/NAME` or `KIND/NAMESPACE/NAME` apart. */
export function parts(object: string): ObjectName {
  const [kind = "", a = "", b] = object.split("/");
  return b === undefined ? { kind, name: a } : { kind, namespace: a, name: b };
}

/** The path of the page that shows an object. */
export function pathOf(object: string): string {
  return "/path/" + object.split("/").map(encodeURIComponent).join("/");
}

/** Quotes a word for a POSIX shell, where it needs it. */
export function shell(word: string): string {
  return /^[A-Za-z0-9._\/:@=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Makes a command of its words; empty words are left out. `options` is a text of the server and is taken as it is. */
export function command(words: string[], options = ""): string {
  return words.filter((w) => w !== "").map(shell).join(" ") + (options && ` ${options}`);
}

/** The ranges of a set of VLAN IDs such as `10-20,30`. */
export function ranges(ids: string): [number, number][] {
  const out: [number, number][] = [];
  for (const part of ids.split(",")) {
    const match = /^\s*(\d+)(?:-(\d+))?\s*$/.exec(part);
    if (match) out.push([Number(match[1]), Number(match[2] ?? match[1])]);
  }
  return out;
}

/** How many IDs are in a set such as `10-20,30`. */
export function countIds(ids: string): number {
  return ranges(ids).reduce((sum, [a, b]) => sum + b - a + 1, 0);
}

/** A number and its noun. */
export function many(n: number, one: string, more = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : more}`;
}
