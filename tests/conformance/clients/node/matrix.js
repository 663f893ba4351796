// What the Node programs share: the records they write, how they check them, and the report.
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

export const PER_CODEC = 50
export const PARTITIONS = 2
export const AGAIN = 5

export function report (client) {
  const path = fileURLToPath(new URL(`node_modules/${client}/package.json`, import.meta.url))
  return { client, version: JSON.parse(readFileSync(path, 'utf8')).version, produced: {}, consumed: {}, resumed: 0, committed: {}, earliest: {}, latest: {} }
}

export const valueOf = key => `${key}:${'x'.repeat(100)}`

export const records = codec => Array.from({ length: PER_CODEC }, (_, i) => ({
  key: `${codec}-${i}`, value: valueOf(`${codec}-${i}`), partition: i % PARTITIONS, headers: { codec, n: String(i) }
}))

export const total = report => Object.values(report.produced).reduce((a, b) => a + b, 0)

// Check a record that was read and count it under its codec.
export function count (report, key, value, { codec, n }) {
  if (key !== `${codec}-${n}` || value !== valueOf(key)) throw new Error(`not what was written: ${key} ${value}`)
  report.consumed[codec] = (report.consumed[codec] ?? 0) + 1
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
