import { useEffect, useState } from "preact/hooks";

let say: ((text: string) => void) | undefined;

/** Lets a screen reader say a text when it is idle. */
export function announce(text: string): void {
  say?.(text);
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
