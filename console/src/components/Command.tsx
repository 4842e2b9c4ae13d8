import { useEffect, useState } from "preact/hooks";
import { announce } from "./Announcer";

/** Copies a text, and says so. */
export function CopyButton({ text, what }: { text: string; what: string }) {
  const [done, setDone] = useState<"copied" | "failed">();
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(undefined), 1600);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = async () => {
    const ok = await copyText(text);
    setDone(ok ? "copied" : "failed");
    announce(ok ? `Copied: ${what}` : "The browser did not let the page copy. Select the text and copy it.");
  };
  return (
    <button type="button" class="copy" aria-label={`Copy ${what}`} title={`Copy ${what}`} onClick={() => void copy()}>
      <svg class="glyph" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
        {done === "copied" ? <path d="M3 8.5l3.2 3.2L13 5" /> : <path d="M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z" />}
      </svg>
      <span class="copy-word">{done ?? "copy"}</span>
    </button>
  );
}

async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without a secure context there is no clipboard; a selection can still be copied.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    document.body.append(area);
    area.select();
    const ok = document.execCommand("copy");
    area.remove();
    return ok;
  }
}

/** A command for a shell, with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code tabIndex={0} aria-label={`Command: ${text}`} role="group">
        <bdi>{text}</bdi>
      </code>
      <CopyButton text={text} what="the command" />
    </div>
  );
}

/** The commands that show the same as a part of a page. */
export function Commands({ commands, title = "The same on the command line" }: { commands: string[]; title?: string }) {
  if (commands.length === 0) return null;
  return (
    <section class="commands" aria-label={title}>
      <h2 class="minor">{title}</h2>
      {commands.map((c) => (
        <Command key={c} text={c} />
      ))}
    </section>
  );
}
