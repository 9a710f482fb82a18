// Builds what a browser gets: `src/barograph/assets/` from `web/src/`. `--watch` builds again on every change.
import { build, context } from "esbuild";
import { cp, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "src", "barograph", "assets");
const options = {
  absWorkingDir: here,
  entryPoints: { page: "src/page.tsx", report: "src/report/report.ts", widget: "src/widget.ts" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "inline", // the licences of what is bundled stay in the files
  logLevel: "warning",
};

await mkdir(out, { recursive: true });
await cp(join(here, "src", "index.html"), join(out, "index.html"));
if (process.argv.includes("--watch")) {
  await (await context(options)).watch();
} else {
  await build(options); // a file is replaced when its whole bundle is made: a broken one leaves the last that worked
}
