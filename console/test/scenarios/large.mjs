// A large fabric: how long the first drawing and an update take.
export default async function large(world) {
  const { page, input } = world;
  const measured = (name) =>
    page.evaluate(
      (of) => performance.getEntriesByName(of).filter((e) => e.detail?.page === "fabric").map((e) => ({ duration: e.duration, requestMs: e.detail.requestMs })),
      name,
    );
  const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
  // The console serves while it still reads the state.
  await world.load("/fabric");
  await world.holds("it has read the state", async () => (await measured("eno:first-draw")).length > 0, 120_000);
  const firsts = [];
  for (let n = 0; n < 5; n += 1) {
    await world.load("/fabric");
    await world.drawn();
    await world.seen("a switch", page.getByRole("button", { name: /^leaf1\b/ }));
    await world.holds("it measures its first drawing", async () => (await measured("eno:first-draw")).length > 0);
    firsts.push((await measured("eno:first-draw"))[0]);
  }
  world.figure("first drawing, median", median(firsts.map((f) => f.duration)));
  world.figure("first drawing, longest", Math.max(...firsts.map((f) => f.duration)));
  world.figure("first request, median", median(firsts.map((f) => f.requestMs)));
  await world.accessible("a large fabric");
  await world.shot("fabric");
  // How long the page itself is busy, without requests and waits.
  await page.evaluate(() => {
    globalThis.busy = [];
    new PerformanceObserver((list) => globalThis.busy.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask", buffered: true });
  });
  const updates = [];
  for (let n = 0; n < input.updates; n += 1) {
    const before = (await measured("eno:update")).length;
    await world.step(`change ${n}`);
    await world.holds("an update", async () => (await measured("eno:update")).length > before, 60_000);
    updates.push((await measured("eno:update")).at(-1));
  }
  world.figure("update, median", median(updates.map((u) => u.duration)));
  world.figure("update, longest", Math.max(...updates.map((u) => u.duration)));
  world.figure("update, longest request", Math.max(...updates.map((u) => u.requestMs)));
  // It may have none.
  world.figure("longest task of the page", Math.max(0, ...(await page.evaluate(() => globalThis.busy))));
  // A filter and a VLAN.
  await world.load(`/fabric?vlan=${input.vlan}`);
  await world.seen("the VLAN", page.getByText(/on \d+ switches/));
  await world.shot("vlan");
  await world.load("/objects");
  await world.drawn();
  await world.shot("objects");
}
