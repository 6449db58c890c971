// How octopi.min.js is made of octopi.js; `make bundle` does it.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

const { minify } = createRequire(new URL("../../.tools/bundler/", import.meta.url))("terser");
const client = new URL("../../octopi/console/static/", import.meta.url);
const { name, version, license } = JSON.parse(readFileSync(new URL("package.json", client), "utf-8"));

const smaller = {
  name: "smaller",
  renderChunk: (code, { isEntry }) =>
    minify(code, {
      module: true,
      ecma: 2022,
      compress: { passes: 3 },
      format: { preamble: isEntry ? `/* ${name} ${version}, ${license} */` : "" },
    }),
};

export default {
  input: fileURLToPath(new URL("octopi.js", client)),
  // What both files need is in the first one only, which exports it to the other by short names.
  preserveEntrySignatures: "allow-extension",
  output: {
    entryFileNames: "octopi.min.js",
    // With a hash: a page that was loaded before its node was upgraded finds no part that doesn't fit.
    chunkFileNames: "octopi-subscriptions-[hash].min.js",
    generatedCode: "es2015",
    plugins: [smaller],
  },
};
