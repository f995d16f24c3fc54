// Reads CTRF and GitHub files with the packages of those who defined them.
//   node checks.mjs ctrf FILE... | annotations FILE... | outputs FILE...
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { validate } from 'ctrf';

const [what, ...files] = process.argv.slice(2);
const core = (name) => import(pathToFileURL(`node_modules/@actions/core/lib/${name}.js`));
let bad = 0;
const fail = (file, text) => { bad++; console.error(`${file}: ${text}`); };

for (const file of files) {
  const text = readFileSync(file, 'utf8');
  if (what === 'ctrf') {
    const result = validate(JSON.parse(text));
    if (!result.valid) fail(file, JSON.stringify(result.errors));
  } else if (what === 'annotations') {
    // Decode each command as the runner does, encode it again with the official
    // encoder: the lines must be the same.
    const { issueCommand } = await core('command');
    for (const line of text.split('\n').filter(Boolean)) {
      const m = /^::(\w+) ([^:]*)::(.*)$/.exec(line);
      if (!m) { fail(file, `not a command: ${line}`); continue; }
      const data = (s) => s.replace(/%0D/g, '\r').replace(/%0A/g, '\n').replace(/%25/g, '%');
      const prop = (s) => s.replace(/%0D/g, '\r').replace(/%0A/g, '\n').replace(/%3A/g, ':').replace(/%2C/g, ',').replace(/%25/g, '%');
      const props = Object.fromEntries(m[2].split(',').map((kv) => [kv.slice(0, kv.indexOf('=')), prop(kv.slice(kv.indexOf('=') + 1))]));
      let again = '';
      const write = process.stdout.write;
      process.stdout.write = (s) => { again += s; return true; };
      try { issueCommand(m[1], props, data(m[3])); } finally { process.stdout.write = write; }
      if (again.trimEnd() !== line.trimEnd()) fail(file, `the official encoder writes\n  ${again}instead of\n  ${line}`);
    }
  } else if (what === 'outputs') {
    const { prepareKeyValueMessage } = await core('file-command');
    const ours = parse(text);
    const theirs = parse(Object.entries(ours).map(([k, v]) => prepareKeyValueMessage(k, v)).join('\n') + '\n');
    if (JSON.stringify(ours) !== JSON.stringify(theirs)) fail(file, 'the official encoder gives other values');
    if (!('final-message' in ours) || !('exit-code' in ours)) fail(file, `outputs are ${Object.keys(ours)}`);
  } else {
    fail(what, 'unknown check');
  }
}
console.log(`${what}: ${files.length} files, ${bad} faults`);
process.exit(bad ? 1 : 0);

function parse(text) {
  const out = {};
  for (let rest = text; rest;) {
    const head = rest.slice(0, rest.indexOf('\n'));
    const [key, mark] = head.split('<<');
    rest = '\n' + rest.slice(head.length + 1);
    const end = rest.indexOf(`\n${mark}\n`);
    if (end < 0) throw new Error(`${key} does not end`);
    out[key] = rest.slice(1, end);
    rest = rest.slice(end + mark.length + 2);
  }
  return out;
}
