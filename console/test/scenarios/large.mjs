// A large fabric: how long the first drawing and an update take.
export default async function large(world) {
  const { page, input } = world;
  const measured = (name) =>
    page.evaluate(
      (of) => performance.getEntriesByName(of).filter((e) => e.detail?.page === "fabric").map((e) => ({ duration: e.duration, requestMs: e.detail.requestMs })),
      name,
    );
  await world.load("/fabric");
  await world.drawn();
  await world.seen("a switch", page.getByRole("button", { name: /^leaf1\b/ }));
  await world.holds("it measures its first drawing", async () => (await measured("eno:first-draw")).length > 0);
  const [first] = await measured("eno:first-draw");
  world.figure("first drawing", first.duration);
  world.figure("first request", first.requestMs);
  await world.accessible("a large fabric");
  await world.shot("fabric");
  const updates = [];
  for (let n = 0; n < input.updates; n += 1) {
    const before = (await measured("eno:update")).length;
    await world.step(`change ${n}`);
    await world.holds("an update", async () => (await measured("eno:update")).length > before, 60_000);
    updates.push((await measured("eno:update")).at(-1));
  }
  const sorted = updates.map((u) => u.duration).sort((a, b) => a - b);
  world.figure("update, median", sorted[Math.floor(sorted.length / 2)]);
  world.figure("update, longest", sorted.at(-1));
  world.figure("update without the request", Math.max(...updates.map((u) => u.duration - u.requestMs)));
  // A filter and a VLAN.
  await world.load(`/fabric?vlan=${input.vlan}`);
  await world.seen("the VLAN", page.getByText(/on \d+ switches/));
  await world.shot("vlan");
  await world.load("/objects");
  await world.drawn();
  await world.shot("objects");
}
