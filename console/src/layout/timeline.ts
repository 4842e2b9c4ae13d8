// The strip of a timeline: when which phase held, where the marks are, and which times are labelled.
import type { Entry, Phase } from "../api";

export interface Span {
  phase: Phase;
  from: number;
  to: number;
}

/** The time of an entry, in ms since 1970. */
export const timeOf = (e: Entry): number => Date.parse(e.at);

/** When which phase held within a window. Entries are in the order of time. Before the first phase nothing is known. */
export function phaseSpans(entries: Entry[], from: number, to: number): Span[] {
  const spans: Span[] = [];
  for (const e of entries) {
    if (e.phase === undefined) continue;
    const at = timeOf(e);
    const last = spans.at(-1);
    if (last) last.to = at;
    if (last?.phase === e.phase) last.to = to;
    else spans.push({ phase: e.phase, from: at, to });
  }
  return spans
    .filter((s) => s.to > from && s.from < to)
    .map((s) => ({ phase: s.phase, from: Math.max(s.from, from), to: Math.min(s.to, to) }));
}

/** The last entry with a phase at or before a time. */
export function phaseAt(entries: Entry[], time: number): Entry | undefined {
  return entries.findLast((e) => e.phase !== undefined && timeOf(e) <= time);
}

export interface MarkAt {
  x: number;
  count: number;
  failed: boolean;
  /** The time of its first entry. */
  at: number;
}

/** The marks of entries on a strip of a width; entries within `step` pixels become one. */
export function marks(entries: Entry[], from: number, to: number, width: number, step = 4): MarkAt[] {
  const out = new Map<number, MarkAt>();
  for (const e of entries) {
    const at = timeOf(e);
    if (at < from || at > to) continue;
    const slot = Math.round((((at - from) / (to - from)) * width) / step);
    const old = out.get(slot);
    if (old) {
      old.count += 1;
      old.failed ||= e.failed;
    } else out.set(slot, { x: slot * step, count: 1, failed: e.failed, at });
  }
  return [...out.values()];
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const STEPS = [MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 48 * HOUR];

/** Round local times in a window, about one per 110 pixels. */
export function ticks(from: number, to: number, width: number): { at: number; day: boolean }[] {
  const want = ((to - from) / Math.max(width, 1)) * 110;
  const step = STEPS.find((s) => s >= want) ?? STEPS.at(-1)!;
  const shift = new Date(from).getTimezoneOffset() * MINUTE;
  const out: { at: number; day: boolean }[] = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) {
    const d = new Date(at);
    out.push({ at, day: d.getHours() === 0 && d.getMinutes() === 0 });
  }
  return out;
}
