import { ago, dateTime } from "../format";
import { now, useTick } from "../live";

/** How long ago a time is; the time itself is the title. */
export function Ago({ at, suffix = true }: { at: string; suffix?: boolean }) {
  useTick();
  const time = Date.parse(at);
  if (Number.isNaN(time)) return <span>{at}</span>;
  const text = ago(now() - time);
  return (
    <time dateTime={at} title={dateTime(at)}>
      {text === "now" ? "just now" : suffix ? `${text} ago` : text}
    </time>
  );
}
