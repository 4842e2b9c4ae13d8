import { useMemo, useRef, useState } from "preact/hooks";
import type { Entry } from "../api";
import { clock, dateTime, duration } from "../format";
import { marks, phaseSpans, ticks } from "../layout/timeline";
import { toneOfPhase } from "../state";
import { useWidth } from "./size";

const LANES: readonly Entry["kind"][] = ["command", "report", "callback", "event"];
const LABEL = 78;
const LANE = 20;

/** Entries over time, in lanes by kind, with the phase above. A drag chooses a window, a click sets the cursor. */
export function TimeStrip(props: {
  entries: Entry[];
  /** The entries are of one object, so that phases follow each other. */
  single: boolean;
  from: number;
  to: number;
  cursor: number;
  setCursor: (at: number) => void;
  setWindow: (from: number, to: number) => void;
}) {
  const { entries, from, to, cursor } = props;
  const [ref, full] = useWidth<HTMLDivElement>();
  const width = Math.max(full - LABEL - 12, 200);
  const [drag, setDrag] = useState<[number, number]>();
  const start = useRef(0);
  const xOf = (at: number) => ((at - from) / (to - from)) * width;
  const timeAt = (x: number) => from + (Math.min(Math.max(x, 0), width) / width) * (to - from);
  const lanes = useMemo(
    () =>
      LANES.map((kind) => ({ kind, marks: marks(entries.filter((e) => e.kind === kind), from, to, width) })).filter(
        (l) => entries.some((e) => e.kind === l.kind),
      ),
    [entries, from, to, width],
  );
  const spans = useMemo(() => (props.single ? phaseSpans(entries, from, to) : []), [entries, from, to, props.single]);
  const phaseMarks = useMemo(
    () => (props.single ? [] : marks(entries.filter((e) => e.kind === "phase"), from, to, width)),
    [entries, from, to, width, props.single],
  );
  const height = 30 + lanes.length * LANE + 26;
  const local = (e: PointerEvent) => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    return e.clientX - box.left - LABEL;
  };
  const down = (e: PointerEvent) => {
    (e.currentTarget as Element).setPointerCapture(e.pointerId);
    start.current = local(e);
    setDrag([start.current, start.current]);
  };
  const move = (e: PointerEvent) => drag && setDrag([start.current, local(e)]);
  const up = () => {
    if (!drag) return;
    const [a, b] = [Math.min(...drag), Math.max(...drag)];
    setDrag(undefined);
    if (b - a < 6) props.setCursor(timeAt(a));
    else props.setWindow(timeAt(a), timeAt(b));
  };
  const cursorX = xOf(cursor);
  return (
    <div class="strip" ref={ref}>
      {full > 0 && (
        <svg
          width={LABEL + width + 12}
          height={height}
          aria-hidden="true"
          onPointerDown={down}
          onPointerMove={move}
          onPointerUp={up}
          onPointerCancel={() => setDrag(undefined)}
        >
          <text class="lane-name" x="0" y="18">
            phase
          </text>
          {lanes.map((l, i) => (
            <text key={l.kind} class="lane-name" x="0" y={30 + i * LANE + 15}>
              {l.kind}s
            </text>
          ))}
          <g transform={`translate(${LABEL} 0)`}>
            {ticks(from, to, width).map((t) => (
              <g key={t.at} transform={`translate(${xOf(t.at)} 0)`}>
                <line class={`tick${t.day ? " day" : ""}`} y1="0" y2={height - 22} />
                <text class="tick-name" x="0" y={height - 7}>
                  {t.day || to - from > 3 * 86_400_000 ? dateTime(t.at).slice(5, t.day ? 10 : 16) : clock(t.at).slice(0, 5)}
                </text>
              </g>
            ))}
            <rect class="band-back" width={width} height="20" y="4" rx="3" />
            {spans.map((s) => {
              const w = Math.max(xOf(s.to) - xOf(s.from), 2);
              return (
                <g key={s.from} class={`tone-${toneOfPhase(s.phase)}`}>
                  <rect class={`band band-${s.phase}`} x={xOf(s.from)} y="4" width={w} height="20" />
                  {w > 58 && (
                    <text class="band-name" x={xOf(s.from) + 6} y="18">
                      {s.phase} {w > 120 ? duration(s.to - s.from) : ""}
                    </text>
                  )}
                </g>
              );
            })}
            {phaseMarks.map((m) => (
              <Mark key={m.x} x={m.x} y={14} count={m.count} failed={m.failed} />
            ))}
            {lanes.map((l, i) => (
              <g key={l.kind} transform={`translate(0 ${30 + i * LANE + LANE / 2})`}>
                <line class="lane" x2={width} />
                {l.marks.map((m) => (
                  <Mark key={m.x} x={m.x} y={0} count={m.count} failed={m.failed} />
                ))}
              </g>
            ))}
            {drag && (
              <rect
                class="drag"
                x={Math.min(...drag)}
                width={Math.abs(drag[1] - drag[0])}
                height={height - 22}
              />
            )}
            {cursorX >= 0 && cursorX <= width && (
              <g transform={`translate(${cursorX} 0)`}>
                <line class="cursor" y2={height - 20} />
                <path class="cursor-head" d="M-5 0h10l-5 7z" />
              </g>
            )}
          </g>
        </svg>
      )}
    </div>
  );
}

/** Entries at one place: a bar, or a cross if one failed. */
function Mark({ x, y, count, failed }: { x: number; y: number; count: number; failed: boolean }) {
  const size = Math.min(7, 3 + Math.log2(count) * 1.4);
  return failed ? (
    <path class="entry-mark failed" d={`M${x - 4} ${y - 4}l8 8M${x + 4} ${y - 4}l-8 8`} />
  ) : (
    <line class="entry-mark" x1={x} x2={x} y1={y - size} y2={y + size} />
  );
}
