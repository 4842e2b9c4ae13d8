import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

let firstPage = true;

/** The frame of a page: its heading, what is beside the heading, its body, and a panel at the side. */
export function Page(props: {
  title: string;
  above?: string;
  beside?: ComponentChildren;
  stale?: boolean;
  panel?: ComponentChildren;
  children: ComponentChildren;
}) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `\u2068${props.title}\u2069 · ENO`;
  }, [props.title]);
  useEffect(() => {
    // After a change of page the focus goes to the new heading. The first page leaves it to the browser.
    if (!firstPage) heading.current?.focus({ preventScroll: true });
    firstPage = false;
  }, []);
  return (
    <div class={props.panel ? "with-panel" : "without-panel"}>
      <main id="main" class={props.stale ? "stale" : undefined}>
        <div class="page-head">
          <h1 ref={heading} tabIndex={-1}>
            {props.above && <bdi class="above">{props.above}</bdi>}
            <bdi class="name">{props.title}</bdi>
          </h1>
          {props.stale && <span class="stale-mark">old data</span>}
          {props.beside}
        </div>
        {props.children}
      </main>
      {props.panel}
    </div>
  );
}
