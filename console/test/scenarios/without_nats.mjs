// Without NATS the pages have what the API server knows, and say what is missing.
import { PAGES, pathOf } from "../lib.mjs";

export default async function withoutNats(world) {
  const { page, input } = world;
  for (const [path, title] of [...PAGES, [pathOf(input.object), undefined]]) {
    await world.load(path);
    await world.drawn(path);
    await world.seen("what is missing", world.notice(/NATS is not asked: no URL of it is known/));
    if (title) await world.shot(title);
  }
  await world.seen("a hop that is unknown", world.hops(/unknown/));
  await world.accessible("a path without NATS");
}
