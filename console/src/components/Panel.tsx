import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

/** A panel beside the page. It takes the focus, and Escape closes it. Who opened it takes the focus back. */
export function Panel(props: { title: string; about: string; close: () => void; children: ComponentChildren }) {
  const id = useId();
  const heading = useRef<HTMLHeadingElement>(null);
  const close = useRef(props.close);
  close.current = props.close;
  useEffect(() => {
    heading.current?.focus({ preventScroll: true });
  }, [props.about]);
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      close.current();
    };
    document.addEventListener("keydown", key);
    return () => document.removeEventListener("keydown", key);
  }, []);
  return (
    <aside class="panel" aria-labelledby={id}>
      <div class="panel-head">
        <h2 id={id} ref={heading} tabIndex={-1}>
          <bdi>{props.title}</bdi>
        </h2>
        <button type="button" class="close" onClick={props.close}>
          <span class="offscreen">Close the panel, </span>
          <span aria-hidden="true">✕</span> <kbd>Esc</kbd>
        </button>
      </div>
      <div class="panel-body" tabIndex={0} role="group" aria-label={`${props.about}: details`}>
        {props.children}
      </div>
    </aside>
  );
}

/** Moves the focus to an element, after the page is drawn. */
export function focusLater(find: () => HTMLElement | null): void {
  requestAnimationFrame(() => find()?.focus({ preventScroll: true }));
}
