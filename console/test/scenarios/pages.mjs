// Every page, light and dark, in a small window and on a large screen.
export default async function pages(world) {
  const { page, input } = world;
  for (const [width, height] of [[1280, 900], [3840, 2160]]) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      for (const [name, path] of Object.entries(input.pages)) {
        const what = `${name}, ${colorScheme}, ${width}`;
        await world.load(path);
        await world.drawn(what);
        await world.fits(what);
        await world.accessible(what);
        await world.shot(`${name}-${colorScheme}-${width}`);
      }
    }
  }
}
