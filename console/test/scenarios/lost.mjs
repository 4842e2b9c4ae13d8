// The API server goes and comes back, then eno ui itself ends. What was read stays, and the page says that it is old.
import { pathOf } from "../lib.mjs";

export default async function lost(world) {
  const { page, input } = world;
  await world.load(pathOf(input.object));
  await world.drawn();
  const hop = world.hops(/confirmed/);
  await world.seen("a hop that is confirmed", hop);
  const count = await hop.count();
  const banner = world.notice(/The API server does not answer/);
  await world.step("stop the API server");
  await world.seen("the banner", banner);
  world.equal("hops that stay", await hop.count(), count);
  await world.accessible("a page without an API server");
  await world.shot("no-api-server");
  // Other pages have what was read, too.
  await world.navigation("Objects").click();
  await world.seen("an object", page.getByRole("link", { name: input.object.split("/").at(-1), exact: true }));
  await world.step("start the API server");
  await world.gone("the banner is gone", banner, 60_000);
  await world.step("change");
  await page.getByRole("searchbox", { name: /Filter/ }).fill(input.changed);
  await world.seen("a change after that", page.getByRole("link", { name: input.changed }), 60_000);

  await page.getByRole("searchbox", { name: /Filter/ }).fill("");
  world.allowed.push(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET/);
  await world.step("stop eno ui");
  await world.seen("the other banner", world.notice(/The connection to eno ui is lost/));
  await world.seen("an object that stays", page.getByRole("link", { name: input.changed }));
  await world.shot("no-eno-ui");
}
