// A fault shows on the path without a reload, and goes when it ends.
import { pathOf } from "../lib.mjs";

/** Waits in the page for a hop whose name says a state, and returns the time at which the DOM had it. */
const noticed = (page, wanted) =>
  page.evaluate(
    (states) =>
      new Promise((found) => {
        const look = () => {
          const hops = document.querySelectorAll("[aria-label='Path from the pods to the gateway'] button");
          const names = [...hops].map((e) => e.getAttribute("aria-label") ?? e.textContent);
          const all = names.filter((name) => /refused|unreachable|waiting|confirmed/.test(name));
          const bad = all.some((name) => /refused|unreachable/.test(name));
          if (states === "bad" ? bad : all.length > 0 && !all.some((name) => /refused|unreachable|waiting/.test(name))) {
            watch.disconnect();
            found(Date.now());
          }
        };
        const watch = new MutationObserver(look);
        watch.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
        look();
      }),
    wanted,
  );

export default async function fault(world) {
  const { page, input } = world;
  await world.load(pathOf(input.object));
  await world.drawn();
  await noticed(page, "good");
  await page.evaluate(() => (globalThis.notLoadedAgain = true));
  await world.shot("before");
  const red = noticed(page, "bad");
  const injected = await world.step("inject");
  world.figure("fault to a red hop", (await red) - injected.at);
  await world.seen("the verdict", page.getByRole("region", { name: "Verdict" }).getByText(/refused|unreachable/));
  await world.shot("fault");
  await world.accessible("a path with a fault");
  const green = noticed(page, "good");
  const cleared = await world.step("clear");
  world.figure("end of the fault to a green path", (await green) - cleared.at);
  world.equal("the page was not loaded again", await page.evaluate(() => globalThis.notLoadedAgain), true);
}
