// `node kafkajs-login.js BOOTSTRAP MECHANISM USER PASSWORD TOPIC CA`: log in over TLS, write one record, read it, print it.
import { readFileSync } from 'node:fs'
import kafkajs from 'kafkajs'

const { Kafka, logLevel } = kafkajs
const [bootstrap, mechanism, username, password, topic, authority] = process.argv.slice(2)
const kafka = new Kafka({
  brokers: [bootstrap],
  ssl: { ca: [readFileSync(authority, 'utf-8')] },
  sasl: { mechanism: mechanism.toLowerCase(), username, password },
  logLevel: logLevel.NOTHING,
  retry: { retries: 2 }
})

async function run () {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: `by ${mechanism}` }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  const value = await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => reject(event.payload.error))
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject)
  })
  await consumer.disconnect()
  console.log(value)
}

run().then(() => process.exit(0), error => { console.error(error.message); process.exit(1) })
