import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { ApiError, Missing } from "../api";
import { clock } from "../format";
import { retry, useSession, type Answer } from "../live";
import { Icon } from "./Status";

/** What an answer lacks, why, and what helps. */
export function MissingNotices({ missing }: { missing: Missing[] }) {
  if (missing.length === 0) return null;
  return (
    <ul class="notices" aria-label="What is missing here">
      {missing.map((m) => (
        <li class="notice tone-wait" key={m.what + m.why}>
          <Icon tone="none" />
          <div>
            <strong>Not shown: {m.what}.</strong> {m.why} <span class="fix">{m.fix}</span>
          </div>
        </li>
      ))}
    </ul>
  );
}

/** What every answer lacks, for a page that shows no answer with such a list. */
export function SessionNotices() {
  const session = useSession().data;
  return session ? <MissingNotices missing={session.missing} /> : null;
}

/** A failure, with what helps. */
export function ErrorNotice({ error, children }: { error: ApiError; children?: ComponentChildren }) {
  return (
    <div class="notice tone-bad" role="alert">
      <Icon tone="bad" />
      <div>
        <strong>{error.error}</strong> <span class="fix">{error.fix}</span> {children}
      </div>
    </div>
  );
}

/** Nothing at first, and a sign of waiting after 200 ms. */
export function Loading({ what }: { what: string }) {
  const [late, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return (
    <p class="loading" role="status">
      {late && (
        <>
          <span class="spinner" aria-hidden="true" /> Reading {what} …
        </>
      )}
    </p>
  );
}

/** The data of an answer, or why there is none. A failed refetch is a notice above the old data. */
export function Answered<T>(props: {
  answer: Answer<T>;
  url: string;
  what: string;
  children: (data: T) => ComponentChildren;
}) {
  const { answer, url, what } = props;
  const again = (
    <button type="button" onClick={() => retry(url)}>
      Try again
    </button>
  );
  if (answer.data === undefined)
    return answer.error ? <ErrorNotice error={answer.error}>{again}</ErrorNotice> : <Loading what={what} />;
  return (
    <>
      {answer.error && (
        <ErrorNotice error={answer.error}>
          What you see is from {clock(answer.at ?? 0)}. {again}
        </ErrorNotice>
      )}
      {props.children(answer.data)}
    </>
  );
}

/** Nothing to show, and what to do about it. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}
