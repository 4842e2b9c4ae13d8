import { useId, useRef, useState } from "preact/hooks";

export interface Choice {
  /** Unique among the choices. */
  value: string;
  label: string;
  /** The kind of thing, such as `VLAN`. */
  hint?: string;
}

/** An input with suggestions, as the ARIA pattern "combobox with list autocomplete" describes it. */
export function Combobox(props: {
  label: string;
  placeholder: string;
  /** The suggestions for a text. */
  suggest: (text: string) => Choice[];
  pick: (choice: Choice) => void;
  /** Called at Enter when no suggestion is chosen. */
  enter?: (text: string) => void;
  /** Whether it is in use, so that suggestions are fetched only then. */
  inUse?: (now: boolean) => void;
  initial?: string;
  hideLabel?: boolean;
  keepText?: boolean;
  inputId?: string;
  class?: string;
}) {
  const ownId = useId();
  const id = props.inputId ?? ownId;
  const [text, setText] = useState(props.initial ?? "");
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const choices = open ? props.suggest(text) : [];
  const shown = open && choices.length > 0;
  const at = Math.min(active, choices.length - 1);

  const pick = (choice: Choice) => {
    setOpen(false);
    setActive(-1);
    setText(props.keepText ? choice.label : "");
    props.pick(choice);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) return setOpen(true);
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((at + step + choices.length) % Math.max(choices.length, 1));
    } else if (event.key === "Enter") {
      const choice = choices[at] ?? (props.enter ? undefined : choices[0]);
      if (choice) pick(choice);
      else {
        setOpen(false);
        props.enter?.(text);
      }
      event.preventDefault();
    } else if (event.key === "Escape" && (open || text)) {
      event.preventDefault();
      if (open && shown) setOpen(false);
      else setText("");
    }
  };
  return (
    <div class={`combobox ${props.class ?? ""}`}>
      <label for={id} class={props.hideLabel ? "offscreen" : undefined}>
        {props.label}
      </label>
      <input
        id={id}
        ref={input}
        type="text"
        role="combobox"
        aria-expanded={shown}
        aria-controls={`${ownId}-list`}
        aria-autocomplete="list"
        aria-activedescendant={shown && at >= 0 ? `${ownId}-${at}` : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder={props.placeholder}
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setOpen(true);
          setActive(-1);
        }}
        onFocus={() => props.inUse?.(true)}
        onBlur={() => {
          setOpen(false);
          props.inUse?.(false);
        }}
        onKeyDown={key}
      />
      <ul id={`${ownId}-list`} role="listbox" aria-label={`${props.label}: suggestions`} hidden={!shown}>
        {choices.map((c, i) => (
          <li
            key={c.value}
            id={`${ownId}-${i}`}
            role="option"
            aria-selected={i === at}
            onPointerDown={(event) => {
              event.preventDefault();
              pick(c);
            }}
          >
            {c.hint && <span class="kind">{c.hint}</span>}
            <bdi class="name">{c.label}</bdi>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** The choices that contain each word of a text, at most `limit`; those that begin with it come first. */
export function matching(choices: readonly Choice[], text: string, limit = 12): Choice[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return choices.slice(0, limit);
  const first: Choice[] = [];
  const rest: Choice[] = [];
  for (const c of choices) {
    const in_ = `${c.hint ?? ""} ${c.label}`.toLowerCase();
    if (!words.every((w) => in_.includes(w))) continue;
    if (c.label.toLowerCase().startsWith(words[0]!)) first.push(c);
    else rest.push(c);
    if (first.length >= limit) break;
  }
  return [...first, ...rest].slice(0, limit);
}
