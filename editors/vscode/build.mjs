// Bundles the extension into dist/, with the licences of what is bundled.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";

import { build } from "esbuild";

const { metafile } = await build({
  entryPoints: ["src/extension.ts"],
  outfile: "dist/extension.js",
  bundle: true,
  minify: true,
  platform: "node",
  target: "node20",
  external: ["vscode"],
  metafile: true,
});

const folders = Object.keys(metafile.inputs).flatMap((path) => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path) ?? []);
const texts = [...new Set(folders)].sort().map((folder) => {
  const { name, version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  return `${name} ${version} (${license})\n\n${findLicence(folder).trim()}\n`;
});
copyFileSync("../../LICENSE", "LICENSE");
writeFileSync("dist/LICENSES.txt", texts.join(`\n${"-".repeat(80)}\n\n`));

function findLicence(folder) {
  for (const name of ["LICENSE", "LICENSE.md", "License.txt"]) {
    try {
      return readFileSync(`${folder}/${name}`, "utf8");
    } catch {
      // another name
    }
  }
  throw new Error(`${folder} has no licence`);
}
