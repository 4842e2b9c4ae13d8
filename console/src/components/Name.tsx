/** A name from the server, isolated from the direction of the text around it. */
export function Name({ text, class: extra }: { text: string; class?: string }) {
  return (
    <bdi class={extra ? `name ${extra}` : "name"} title={text}>
      {text}
    </bdi>
  );
}
