// An API server that takes long for each answer delays no page that is of what was read.
import { PAGES, pathOf } from "../lib.mjs";

/** Within this each page is drawn, in ms. */
const SOON = 3000;

export default async function slow(world) {
  const { page, input } = world;
  for (const [path, title] of [...PAGES, [pathOf(input.object), undefined]]) {
    const start = performance.now();
    await world.load(path);
    await world.seen("a heading", page.getByRole("heading", { level: 1, ...(title ? { name: title } : {}) }), SOON);
    await world.drawn(path);
    world.figure(`page ${path.split("/")[1] || "overview"}`, performance.now() - start);
  }
  // A plan asks the API server. Meanwhile the page says that it works on it.
  await world.load("/plan");
  await page.getByRole("textbox", { name: /Manifests/ }).fill(input.manifests);
  await page.getByRole("button", { name: "Show the plan" }).click();
  await world.seen("that it computes", page.getByRole("button", { name: /Computing/ }));
  await world.seen("the plan", page.getByRole("region", { name: "Plan" }), 90_000);
}
