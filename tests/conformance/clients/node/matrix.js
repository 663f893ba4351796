// What the Node programs share: the records they write, how they check them, and the report.
import { readFileSync, readSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const PER_CODEC = 50
export const PARTITIONS = 2
export const AGAIN = 5
export const AS_THE_BROKER_SAYS = -1

export function report (client) {
  const path = fileURLToPath(new URL(`node_modules/${client}/package.json`, import.meta.url))
  return { client, version: JSON.parse(readFileSync(path, 'utf8')).version, produced: {}, consumed: {}, repeated: 0, resumed: 0, committed: {}, earliest: {}, latest: {} }
}

export const valueOf = key => `${key}:${'x'.repeat(100)}`

export const records = codec => Array.from({ length: PER_CODEC }, (_, i) => ({
  key: `${codec}-${i}`, value: valueOf(`${codec}-${i}`), partition: i % PARTITIONS, headers: { codec, n: String(i) }
}))

export const total = report => Object.values(report.produced).reduce((a, b) => a + b, 0)

// Tell whoever runs the program how far it is, and wait for a line, or for the end of the input.
export function middle (of) {
  console.log(JSON.stringify({ middle: of }))
  const byte = Buffer.alloc(1)
  while (readSync(0, byte) === 1 && byte[0] !== 10);
}

// Send a codec's records in two halves; in the middle of all, the program says so.
export async function inHalves (report, codecs, messages, send) {
  await send(messages.slice(0, PER_CODEC / 2))
  if (Object.keys(report.produced).length === Math.floor(codecs / 2)) middle('writing')
  await send(messages.slice(PER_CODEC / 2))
}

const seen = new Set()

// How many records were read, each counted once.
export const read = () => seen.size

// Check a record that was read and count it under its codec; one that came before, because the member had to join again
// before it had committed, is counted apart.
export function count (report, key, value, { codec, n }) {
  if (key !== `${codec}-${n}` || value !== valueOf(key)) throw new Error(`not what was written: ${key} ${value}`)
  if (seen.has(key)) {
    report.repeated++
    return
  }
  seen.add(key)
  report.consumed[codec] = (report.consumed[codec] ?? 0) + 1
  if (seen.size === Math.floor(total(report) / 2)) middle('reading')
}

// Run the round, print its report and end: clients may keep timers that hold the process.
export async function run (round) {
  const started = performance.now()
  try {
    const done = await round(...process.argv.slice(2))
    console.log(JSON.stringify({ ...done, seconds: (performance.now() - started) / 1000 }))
    process.exit(0)
  } catch (error) {
    console.error(error)
    process.exit(1)
  }
}
