// A member of a group of mixed languages: `node platformatic-member.js BOOTSTRAP TOPIC GROUP roundrobin`.
import { Consumer, stringDeserializers } from '@platformatic/kafka'
import { HEARTBEAT, SESSION, holds, read } from './member.js'

const [bootstrap, topic, groupId, strategy] = process.argv.slice(2)

const consumer = new Consumer({
  clientId: 'platformatic', bootstrapBrokers: [bootstrap], groupId, deserializers: stringDeserializers, autocommit: false,
  sessionTimeout: SESSION, heartbeatInterval: HEARTBEAT, protocols: [{ name: strategy, version: 1 }], maxWaitTime: 200
})
consumer.on('consumer:group:rebalance', () => holds([]))
consumer.on('consumer:group:join', ({ assignments }) => (
  holds((assignments ?? []).filter(each => each.topic === topic).flatMap(each => each.partitions))
))
let leaving = false
process.on('SIGTERM', async () => {
  leaving = true
  await consumer.close(true)
  process.exit(0)
})
const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
try {
  for await (const message of stream) {
    await message.commit()
    read(message.partition, Number(message.offset))
  }
} catch (error) {
  if (!leaving) throw error
}
