// A dump shows what the cluster showed, and says when that was.
import { PAGES, pathOf } from "../lib.mjs";

export default async function dump(world) {
  const { page, input } = world;
  for (const [path, title] of PAGES) {
    await world.load(path);
    await world.drawn(path);
    await world.seen(`heading ${title}`, page.getByRole("heading", { level: 1, name: title }));
    await world.seen("the time of the dump", world.notice(/As of .*, from a dump/));
    await world.shot(title);
  }
  await world.load(pathOf(input.object));
  await world.drawn();
  await world.seen("a hop that is confirmed", world.hops(/confirmed/));
  await world.seen("commands on the dump", page.getByText(/--from /));
  await world.accessible("a path of a dump");
  await world.load(`/timeline?object=${encodeURIComponent(input.object)}`);
  await world.drawn();
  await world.seen("an entry", page.getByRole("cell", { name: "phase" }));
}
