/** Styles are imported for their effect; esbuild collects them in console.css. */
declare module "*.css";
