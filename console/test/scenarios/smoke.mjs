// Each page draws itself, two of them serve all people, and a change arrives without a reload.
import { PAGES, pathOf } from "../lib.mjs";

export default async function smoke(world) {
  const { page, input } = world;
  world.equal("the address without the token", page.url(), `${world.origin}/`);
  for (const [path, title] of PAGES) {
    if (path !== "/") await world.navigation(title).click();
    await world.seen(`heading ${title}`, page.getByRole("heading", { level: 1, name: title }));
    await world.drawn(path);
    world.equal("the path", new URL(page.url()).pathname, path);
    if (path === "/") await world.accessible("the first page");
    await world.shot(title);
  }
  await world.load(pathOf(input.object));
  await world.drawn();
  await world.seen("a hop that is confirmed", world.hops(/confirmed/));
  await world.seen("what a probe found", page.getByRole("row", { name: /node1 node3 3730 lost/ }));
  await world.seen("the command that asks", page.getByLabel(/^Command: eno connectivity test l2serviceattachment/));
  await world.accessible("a path");
  await world.shot("path");

  await world.navigation("Objects").click();
  await world.drawn("objects");
  await page.evaluate(() => (globalThis.notLoadedAgain = true));
  await world.step("change");
  await page.getByRole("searchbox", { name: /Filter/ }).fill(input.changed);
  await world.seen("the new object", page.getByRole("link", { name: input.changed }));
  world.equal("the page was not loaded again", await page.evaluate(() => globalThis.notLoadedAgain), true);
}
