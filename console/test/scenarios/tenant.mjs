// A tenant sees the own attachment, what is left out and why, and nothing of others.
import { PAGES, pathOf } from "../lib.mjs";

export default async function tenant(world) {
  const { page, input } = world;
  for (const [path, title] of PAGES) {
    await world.load(path);
    await world.seen(`heading ${title}`, page.getByRole("heading", { level: 1, name: title }));
    await world.drawn(path);
    await world.seen("what is left out", world.notice(/You may not list them/));
    const text = await page.locator("body").innerText();
    for (const name of input.hidden) if (text.includes(name)) throw new Error(`${path} shows ${name}`);
    await world.shot(title);
  }
  await world.load(pathOf(input.object));
  await world.drawn();
  await world.accessible("a tenant's path");
  await world.shot("path");
  // Another tenant's object: the page says why it shows nothing, and the rest of the console stays.
  world.allowed.push(/status of 403/);
  await world.load(pathOf(input.foreign));
  await world.seen("the reason", page.getByRole("alert").getByText(/you may not read it/));
  await world.seen("the navigation", world.navigation("Objects"));
  await world.shot("refused");
}
