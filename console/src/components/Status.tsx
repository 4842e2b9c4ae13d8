import type { Phase, State } from "../api";
import { phaseWord, toneOfPhase, toneOfState, type Tone } from "../state";

/** The shape of a tone. Each differs in outline, so that it is distinct without colour. */
export function Icon({ tone, class: extra }: { tone: Tone; class?: string }) {
  return (
    <svg class={`icon tone-${tone} ${extra ?? ""}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      {shape(tone)}
    </svg>
  );
}

function shape(tone: Tone) {
  switch (tone) {
    case "bad":
      return (
        <>
          <path class="fill" d="M5 1h6l4 4v6l-4 4H5l-4-4V5z" />
          <path class="sign" d="M5.2 5.2l5.6 5.6M10.8 5.2l-5.6 5.6" />
        </>
      );
    case "away":
      return (
        <>
          <path class="fill" d="M8 1.2 15.4 14.4H.6z" />
          <path class="sign" d="M8 6v4M8 11.6v1" />
        </>
      );
    case "wait":
      return (
        <>
          <circle class="line" cx="8" cy="8" r="6.4" />
          <path class="line" d="M8 4.4V8l2.6 1.8" />
        </>
      );
    case "good":
      return (
        <>
          <circle class="line" cx="8" cy="8" r="6.4" />
          <path class="line" d="M4.9 8.2l2.2 2.2 4-4.6" />
        </>
      );
    case "gone":
      return (
        <>
          <circle class="line" cx="8" cy="8" r="6.4" />
          <path class="line" d="M3.6 12.4l8.8-8.8" />
        </>
      );
    default:
      return (
        <>
          <circle class="line dashed" cx="8" cy="8" r="6.4" />
          <path class="line" d="M6.2 6.4c0-2.4 3.6-2.2 3.6-.2 0 1.3-1.8 1.3-1.8 2.6M8 11.2v.6" />
        </>
      );
  }
}

/** A tone's shape and a word. */
export function Badge({ tone, word }: { tone: Tone; word: string }) {
  return (
    <span class={`badge tone-${tone}`}>
      <Icon tone={tone} />
      {word}
    </span>
  );
}

export const StateBadge = ({ state }: { state: State }) => <Badge tone={toneOfState(state)} word={state} />;
export const PhaseBadge = ({ phase }: { phase: Phase }) => <Badge tone={toneOfPhase(phase)} word={phaseWord(phase)} />;
