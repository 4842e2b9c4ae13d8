import { useEffect, useMemo } from "preact/hooks";
import type { Hop, Path } from "../api";
import { many } from "../format";
import { layout, metaOf, monoPerLine, TIERS, worstMessage, type Card, type Drawing, type Placed } from "../layout/path";
import { toneOfState } from "../state";
import { Icon } from "./Status";
import { useWidth } from "./size";

/** The id of the element of a card, for the focus. */
export const cardElementId = (id: string): string => `card ${id}`.replaceAll(" ", "\u00a0");

/** The drawing of a path: a column per tier, links behind the cards. */
export function PathDrawing(props: {
  path: Path;
  open: ReadonlySet<string>;
  selected: string | undefined;
  select: (hop: Hop) => void;
  toggle: (key: string) => void;
}) {
  const [ref, width] = useWidth<HTMLDivElement>();
  const { hops, links } = props.path;
  const drawing = useMemo(
    () => (width > 0 ? layout(hops, links, props.open, width) : undefined),
    [hops, links, props.open, width],
  );
  return (
    <div class="path-scroll" ref={ref} tabIndex={0} role="group" aria-label="Path from the pods to the gateway">
      {drawing && <Columns drawing={drawing} {...props} />}
    </div>
  );
}

function Columns(props: {
  path: Path;
  drawing: Drawing;
  selected: string | undefined;
  select: (hop: Hop) => void;
  toggle: (key: string) => void;
}) {
  const { drawing, selected } = props;
  const reasonOf = (column: number) => {
    const { tier, none } = TIERS[column]!;
    return props.path.hidden.includes(tier) ? "you may not list what is here" : none;
  };
  const size = { width: `${drawing.width}px`, height: `${drawing.height}px` };
  const chosen = drawing.cards.find((p) => p.card.hops.some((h) => h.id === selected) && p.card.kind !== "head")?.card.id;
  // A hop that is chosen by a link to the page may be beside what is seen.
  useEffect(() => {
    if (chosen !== undefined)
      document.getElementById(cardElementId(chosen))?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [chosen, drawing.width]);
  return (
    <div class="path" style={{ width: size.width }}>
      <div class="tier-heads">
        {drawing.columns.map((c, i) => {
          const { title } = TIERS[i]!;
          const tone = c.empty ? "none" : toneOfState(c.state);
          return (
            <div
              key={c.tier}
              class={`tier-head tone-${tone}${c.empty ? " slim" : ""}`}
              style={{ left: `${c.x}px`, width: `${c.width}px` }}
              title={c.empty ? `${title}: ${reasonOf(i)}` : undefined}
            >
              {!c.empty && (
                <>
                  <span class="tier-title">{title}</span>
                  <span class="tier-total">{c.total}</span>
                  <span class="tier-count">
                    <Icon tone={tone} />
                    {c.open === 0 ? "confirmed" : `${c.open < c.total ? `${c.worst} ` : ""}${c.state}`}
                  </span>
                </>
              )}
            </div>
          );
        })}
      </div>
      <div class="path-body" style={size}>
        <svg class="path-lines" width={drawing.width} height={drawing.height} aria-hidden="true">
          {drawing.lines.map((l) => (
            <path
              key={l.id}
              class={`link tone-${toneOfState(l.state)}${l.from === chosen || l.to === chosen ? " chosen" : ""}`}
              d={l.d}
            />
          ))}
          {drawing.lines
            .filter((l) => l.state === "refused" || l.state === "unreachable")
            .map((l) => (
              <g key={l.id} class={`link-mark tone-${toneOfState(l.state)}`} transform={`translate(${l.mid[0]} ${l.mid[1]})`}>
                <circle r="6.5" />
                <path d="M-2.6-2.6l5.2 5.2M2.6-2.6l-5.2 5.2" />
              </g>
            ))}
        </svg>
        {drawing.columns.map((c, i) =>
          c.empty ? (
            <p key={c.tier} class="tier-empty" style={{ left: `${c.x}px`, width: `${c.width}px` }}>
              <strong>{TIERS[i]!.title}</strong>: {reasonOf(i)}
            </p>
          ) : (
            <ul key={c.tier} class="tier" aria-label={`${TIERS[i]!.title}, ${c.total}`}>
              {drawing.cards
                .filter((p) => p.card.tier === c.tier)
                .map((p) => (
                  <li key={p.card.id}>
                    <CardButton placed={p} selected={p.card.id === chosen} select={props.select} toggle={props.toggle} />
                  </li>
                ))}
            </ul>
          ),
        )}
      </div>
    </div>
  );
}

function CardButton(props: {
  placed: Placed;
  selected: boolean;
  select: (hop: Hop) => void;
  toggle: (key: string) => void;
}) {
  const { card, x, y, width, height } = props.placed;
  const tone = toneOfState(card.state);
  const { kind } = card;
  return (
    <button
      type="button"
      id={cardElementId(card.id)}
      class={`hop ${kind} tone-${kind === "head" ? "none" : tone}${props.selected ? " selected" : ""}`}
      style={{ left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` }}
      aria-expanded={kind === "hop" ? undefined : kind === "head"}
      aria-pressed={kind === "hop" ? props.selected : undefined}
      title={titleOf(card)}
      onClick={() => (card.kind === "hop" ? props.select(card.hop) : props.toggle(card.key))}
    >
      {card.kind === "hop" ? <HopFace hop={card.hop} width={width} /> : <FoldFace card={card} />}
    </button>
  );
}

function nounOf(card: Card): (n: number) => string {
  const tier = TIERS.find((t) => t.tier === card.tier)!;
  return (n) => many(n, tier.one, tier.more);
}

function titleOf(card: Card): string | undefined {
  if (card.kind !== "hop") return card.title || undefined;
  const { label, detail, message, addresses = [] } = card.hop;
  return [label, detail, ...addresses, message].filter(Boolean).join("\n");
}

function HopFace({ hop, width }: { hop: Hop; width: number }) {
  const tone = toneOfState(hop.state);
  return (
    <>
      <span class="hop-state">
        <Icon tone={tone} />
        {hop.state}
      </span>
      <bdi class="hop-label">{hop.label}</bdi>
      {hop.detail && <bdi class="hop-detail">{hop.detail}</bdi>}
      {metaOf(hop, monoPerLine(width)).map((m, i) => (
        <bdi key={i} class={`hop-meta${i === 0 ? " first" : ""}`}>
          {m}
        </bdi>
      ))}
      {hop.message && hop.state !== "confirmed" && <bdi class="hop-message">{hop.message}</bdi>}
    </>
  );
}

function FoldFace({ card }: { card: Exclude<Card, { kind: "hop" }> }) {
  const count = nounOf(card);
  if (card.kind === "head")
    return (
      <>
        <span class="twist" aria-hidden="true">
          ▾
        </span>
        <span class="offscreen">Collapse </span>
        <bdi class="hop-detail">
          {card.hops.length > 0 ? `${card.total - card.hops.length} of ${card.total}` : card.total} · {card.title || "all"}
        </bdi>
      </>
    );
  const message = worstMessage(card);
  return (
    <>
      <span class="hop-state">
        <Icon tone={toneOfState(card.state)} />
        {card.state}
        <span class="twist" aria-hidden="true">
          ▸
        </span>
        <span class="offscreen">, expand</span>
      </span>
      <span class="hop-label">{count(card.hops.length)}</span>
      <bdi class="hop-detail two">{card.title || "\u00a0"}</bdi>
      {card.counts.map(([state, n]) => (
        <span key={state} class={`fold-count tone-${toneOfState(state)}`}>
          <Icon tone={toneOfState(state)} />
          {n} {state}
        </span>
      ))}
      {message && <bdi class="hop-message">{message}</bdi>}
    </>
  );
}
