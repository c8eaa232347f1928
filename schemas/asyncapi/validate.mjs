// Validates an AsyncAPI document with the official parser. Exits 1 on any error
// or warning; hints of severity "information" are shown and tolerated.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Parser } from '@asyncapi/parser';

const here = path.dirname(fileURLToPath(import.meta.url));
const file = path.resolve(here, process.argv[2] ?? '../asyncapi.yaml');
const WARNING = 1;

const source = pathToFileURL(file).href;
const { document, diagnostics } = await new Parser().parse(await readFile(file, 'utf8'), { source: file });

let failures = 0;
for (const finding of diagnostics) {
  const fails = finding.severity <= WARNING;
  failures += fails ? 1 : 0;
  const line = finding.range.start.line + 1;
  console.error(`${fails ? 'error' : 'hint'} line ${line} ${finding.code}: ${finding.message} (${finding.path.join('.')})`);
}
if (failures > 0 || document === undefined) {
  console.error(`${source}: ${failures} problem(s)`);
  process.exit(1);
}
console.log(`${path.basename(file)}: AsyncAPI ${document.version()}, ${document.channels().length} channels, ` +
  `${document.operations().length} operations, ${document.messages().length} messages: valid`);
