import { parts, pathOf } from "../format";

/** An object as a link to its path: the kind small, then namespace and name. */
export function ObjectLink({ object, short }: { object: string; short?: boolean }) {
  const { kind, namespace, name } = parts(object);
  return (
    <a class="object" href={pathOf(object)} title={object}>
      {!short && <bdi class="kind">{kind}</bdi>}
      <bdi class="name">{namespace === undefined ? name : `${namespace}/${name}`}</bdi>
    </a>
  );
}

const looksLikeObject = /^[A-Z][A-Za-z0-9]+\/[^/\s]+(\/[^/\s]+)?$/;

/** A text that may be the name of an object; if so, a link. */
export function MaybeObject({ text }: { text: string }) {
  return looksLikeObject.test(text) ? <ObjectLink object={text} /> : <bdi class="name">{text}</bdi>;
}
