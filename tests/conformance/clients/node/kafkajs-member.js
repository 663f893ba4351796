// A member of a group of mixed languages: `node kafkajs-member.js BOOTSTRAP TOPIC GROUP roundrobin`.
import kafkajs from 'kafkajs'
import { HEARTBEAT, SESSION, holds, read } from './member.js'

const { Kafka, PartitionAssigners, logLevel } = kafkajs
const [bootstrap, topic, groupId, strategy] = process.argv.slice(2)

// Its one assigner does what others call `roundrobin`, under a name of its own: groups agree by name.
const renamed = settings => ({ ...PartitionAssigners.roundRobin(settings), name: strategy })

const kafka = new Kafka({ clientId: 'kafkajs', brokers: [bootstrap], logLevel: logLevel.ERROR })
const consumer = kafka.consumer({
  groupId, sessionTimeout: SESSION, heartbeatInterval: HEARTBEAT, partitionAssigners: [renamed]
})
const { GROUP_JOIN, REBALANCING, CRASH } = consumer.events
consumer.on(GROUP_JOIN, ({ payload }) => holds(payload.memberAssignment[topic] ?? []))
consumer.on(REBALANCING, () => holds([]))
consumer.on(CRASH, ({ payload }) => { if (!payload.restart) process.exit(1) })
await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
process.on('SIGTERM', async () => {
  await consumer.disconnect()
  process.exit(0)
})
await consumer.run({
  autoCommit: false,
  eachMessage: async ({ partition, message }) => {
    await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
    read(partition, Number(message.offset))
  }
})
