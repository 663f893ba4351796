// The round of the client matrix with kafkajs: `node kafkajs.js BOOTSTRAP TOPIC GROUP`.
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4-napi'
import zstd from '@mongodb-js/zstd'
import { AGAIN, PARTITIONS, count, inHalves, middle, read, records, report, run, total } from './matrix.js'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs

// kafkajs has gzip of its own and takes the others from outside.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(await lz4.compressFrame(encoder.buffer)),
  decompress: async buffer => Buffer.from(await lz4.decompressFrame(buffer))
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: encoder => zstd.compress(encoder.buffer, 3),
  decompress: buffer => zstd.decompress(buffer)
})

const codecs = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD
}

// Give each message of a group's member to `take` until that says that all have come; then `atEnd` and leave.
async function member (kafka, topic, groupId, take, atEnd) {
  const consumer = kafka.consumer({ groupId })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, event => event.payload.restart || reject(event.payload.error))
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        try {
          if (take(partition, message)) resolve()
        } catch (error) {
          reject(error)
        }
      }
    }).catch(reject)
  })
  await atEnd(consumer)
  await consumer.disconnect()
}

async function consume (done, kafka, admin, topic, group) {
  const next = {}
  await member(kafka, topic, group, (partition, message) => {
    const headers = { codec: message.headers.codec.toString(), n: message.headers.n.toString() }
    count(done, message.key.toString(), message.value.toString(), headers)
    next[partition] = Number(message.offset) + 1
    return read() === total(done)
  }, async consumer => {
    middle('end')
    const [described] = (await admin.describeGroups([group])).groups
    done.group_state = described.state
    done.group_members = described.members.length
    await consumer.commitOffsets(Object.entries(next).map(([partition, offset]) => (
      { topic, partition: Number(partition), offset: String(offset - AGAIN) }
    )))
  })
  const [committed] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  for (const { partition, offset } of committed.partitions) done.committed[partition] = Number(offset)
}

async function resume (done, kafka, topic, group) {
  await member(kafka, topic, group, (partition, message) => {
    if (Number(message.offset) < done.committed[partition]) throw new Error(`offset ${message.offset} came again`)
    return ++done.resumed === AGAIN * PARTITIONS
  }, async () => {})
}

await run(async (bootstrap, topic, group) => {
  const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
  const done = report('kafkajs')
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS }], waitForLeaders: true })
  done.partitions = (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length
  const producer = kafka.producer({ idempotent: true, createPartitioner: () => ({ message }) => message.partition })
  await producer.connect()
  for (const [name, compression] of Object.entries(codecs)) {
    const messages = records(name)
    await inHalves(done, Object.keys(codecs).length, messages, half => (
      producer.send({ topic, compression, acks: -1, messages: half })
    ))
    done.produced[name] = messages.length
  }
  await producer.disconnect()
  await consume(done, kafka, admin, topic, group)
  await resume(done, kafka, topic, group)
  for (const { partition, low, high } of await admin.fetchTopicOffsets(topic)) {
    done.earliest[partition] = Number(low)
    done.latest[partition] = Number(high)
  }
  const gone = `${topic}-gone`
  await admin.createTopics({ topics: [{ topic: gone }], waitForLeaders: true })
  await admin.deleteTopics({ topics: [gone] })
  done.deleted = !(await admin.listTopics()).includes(gone)
  await admin.disconnect()
  return done
})
