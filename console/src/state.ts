// Which state is worse, and how states and phases look.
import type { Phase, ProbeResult, State } from "./api";

/** The states, worst first. */
export const STATES: readonly State[] = ["refused", "unreachable", "missing", "waiting", "unknown", "confirmed"];

const rank = new Map<State, number>(STATES.map((s, i) => [s, i]));

/** The place of a state in the order, worst first. A state that this version does not know counts as unknown. */
export const badness = (s: State): number => rank.get(s) ?? STATES.indexOf("unknown");

/** The worst of some states; confirmed if there is none. */
export function worst(states: Iterable<State>): State {
  let out: State = "confirmed";
  for (const s of states) if (badness(s) < badness(out)) out = s;
  return out;
}

/** The kinds of look that a state or a phase has; each has a colour and a shape of its own. */
export type Tone = "bad" | "away" | "wait" | "none" | "good" | "gone";

export function toneOfState(s: State): Tone {
  switch (s) {
    case "refused":
      return "bad";
    case "unreachable":
      return "away";
    case "missing":
    case "waiting":
      return "wait";
    case "confirmed":
      return "good";
    default:
      return "none";
  }
}

export function toneOfPhase(p: Phase): Tone {
  switch (p) {
    case "error":
      return "bad";
    case "pending":
    case "configuring":
    case "terminating":
      return "wait";
    case "ready":
    case "configured":
      return "good";
    case "deleted":
      return "gone";
    default:
      return "none";
  }
}

/** The phases in the order in which people look at them. */
export const PHASES: readonly Phase[] = [
  "error",
  "pending",
  "configuring",
  "terminating",
  "unset",
  "ready",
  "configured",
  "deleted",
  "-",
];

/** The word for a phase; `-` is an object without a status. */
export const phaseWord = (p: Phase): string => (p === "-" ? "no status" : p);

/** An outcome that this version does not know is neither good nor bad. */
export function toneOfOutcome(outcome: ProbeResult["outcome"]): Tone {
  switch (outcome) {
    case "lost":
    case "silent":
    case "too-big":
    case "leaking":
      return "bad";
    case "unasked":
      return "wait";
    case "passed":
    case "answered":
    case "isolated":
      return "good";
    default:
      return "none";
  }
}
