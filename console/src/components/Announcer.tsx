import { useEffect, useRef, useState } from "preact/hooks";

let say: ((text: string) => void) | undefined;

/** Lets a screen reader say a text when it is idle. */
export function announce(text: string): void {
  say?.(text);
}

/** Says a text when it changes, but not what it is at first. */
export function useSpoken(text: string | undefined): void {
  const last = useRef<string | undefined>(undefined);
  useEffect(() => {
    if (text === undefined) return;
    if (last.current !== undefined && last.current !== text) announce(text);
    last.current = text;
  }, [text]);
}

/** The live region of the page. */
export function Announcer() {
  const [text, setText] = useState("");
  useEffect(() => {
    say = setText;
    return () => {
      say = undefined;
    };
  }, []);
  return (
    <div class="offscreen" aria-live="polite" role="status">
      {text}
    </div>
  );
}
