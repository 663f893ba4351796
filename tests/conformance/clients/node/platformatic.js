// The round of the client matrix with @platformatic/kafka: `node platformatic.js BOOTSTRAP TOPIC GROUP`.
import zlib from 'node:zlib'
import { Admin, Consumer, ListOffsetTimestamps, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { AGAIN, AS_THE_BROKER_SAYS, PARTITIONS, count, inHalves, middle, read, records, report, run, total } from './matrix.js'

// This client takes zstd from Node itself, which has it from 22.15 on.
const codecs = ['none', 'gzip', 'snappy', 'lz4', ...(zlib.zstdCompressSync ? ['zstd'] : [])]

// Give each message of a group's member to `take` until that says that all have come; then `atEnd` and leave.
async function member (settings, topic, groupId, take, atEnd) {
  const consumer = new Consumer({ ...settings, groupId, deserializers: stringDeserializers, autocommit: false })
  const stream = await consumer.consume({ topics: [topic], mode: 'committed', fallbackMode: 'earliest' })
  for await (const message of stream) {
    if (take(message)) break
  }
  await atEnd(consumer)
  await consumer.close(true)
}

async function consume (done, settings, admin, topic, group) {
  const next = {}
  await member(settings, topic, group, message => {
    count(done, message.key, message.value, Object.fromEntries(message.headers))
    next[message.partition] = message.offset + 1n
    return read() === total(done)
  }, async consumer => {
    middle('end')
    const described = (await admin.describeGroups({ groups: [group] })).get(group)
    done.group_state = described.state
    done.group_members = described.members.size
    const offsets = Object.entries(next).map(([partition, offset]) => (
      { topic, partition: Number(partition), offset: offset - BigInt(AGAIN), leaderEpoch: -1 }
    ))
    await consumer.commit({ offsets })
  })
  const [committed] = await admin.listConsumerGroupOffsets({ groups: [group] })
  for (const { partitionIndex, committedOffset } of committed.topics[0].partitions) {
    done.committed[partitionIndex] = Number(committedOffset)
  }
}

async function resume (done, settings, topic, group) {
  await member(settings, topic, group, message => {
    if (Number(message.offset) < done.committed[message.partition]) throw new Error(`offset ${message.offset} came again`)
    return ++done.resumed === AGAIN * PARTITIONS
  }, async () => {})
}

async function offsets (admin, topic, timestamp) {
  const partitions = Array.from({ length: PARTITIONS }, (_, partitionIndex) => ({ partitionIndex, timestamp }))
  const [listed] = await admin.listOffsets({ topics: [{ name: topic, partitions }] })
  return Object.fromEntries(listed.partitions.map(each => [each.partitionIndex, Number(each.offset)]))
}

await run(async (bootstrap, topic, group) => {
  const settings = { clientId: 'matrix', bootstrapBrokers: bootstrap.split(',') }
  const done = report('@platformatic/kafka')
  // It keeps metadata for five seconds, and asks a leader of before as often as it tries: it keeps none here.
  const admin = new Admin({ ...settings, metadataMaxAge: 0 })
  await admin.createTopics({ topics: [topic], partitions: PARTITIONS, replicas: AS_THE_BROKER_SAYS })
  done.partitions = (await admin.metadata({ topics: [topic] })).topics.get(topic).partitionsCount
  const producer = new Producer({ ...settings, serializers: stringSerializers, idempotent: true })
  for (const compression of codecs) {
    const messages = records(compression).map(each => ({ ...each, topic }))
    await inHalves(done, codecs.length, messages, half => producer.send({ messages: half, compression, acks: -1 }))
    done.produced[compression] = messages.length
  }
  await producer.close()
  await consume(done, settings, admin, topic, group)
  await resume(done, settings, topic, group)
  done.earliest = await offsets(admin, topic, ListOffsetTimestamps.EARLIEST)
  done.latest = await offsets(admin, topic, ListOffsetTimestamps.LATEST)
  const gone = `${topic}-gone`
  await admin.createTopics({ topics: [gone], partitions: 1, replicas: 1 })
  await admin.deleteTopics({ topics: [gone] })
  done.deleted = !(await admin.listTopics()).includes(gone)
  await admin.close()
  return done
})
