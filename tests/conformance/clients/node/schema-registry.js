// Schemas of each kind registered, found again, encoded with and decoded with, by @kafkajs/confluent-schema-registry.
// Arguments: the registry's URL, a value that another client has encoded (hex). Prints what it made, a line of JSON.
import registry from '@kafkajs/confluent-schema-registry'

const { SchemaRegistry, SchemaType } = registry
const [host, foreign] = process.argv.slice(2)
const client = new SchemaRegistry({ host })

const schemas = {
  avro: [SchemaType.AVRO, { type: 'record', name: 'Order', namespace: 'n', fields: [{ name: 'id', type: 'int' }] }],
  json: [SchemaType.JSON, { type: 'object', properties: { id: { type: 'integer' } }, required: ['id'] }],
  protobuf: [SchemaType.PROTOBUF, 'syntax = "proto3"; package n; message Order { int32 id = 1; }'],
}
const made = {}
for (const [name, [type, schema]] of Object.entries(schemas)) {
  const text = typeof schema === 'string' ? schema : JSON.stringify(schema)
  const { id } = await client.register({ type, schema: text }, { subject: `node-${name}` })
  const again = await client.register({ type, schema: text }, { subject: `node-${name}` })
  const encoded = await client.encode(id, { id: 7 })
  const fresh = new SchemaRegistry({ host })
  const { id: decoded } = await fresh.decode(encoded)
  made[name] = {
    id, again: again.id, latest: await client.getLatestSchemaId(`node-${name}`), decoded,
    encoded: encoded.toString('hex'),
  }
}
let refused = null
try {
  const schema = { ...schemas.avro[1], fields: [{ name: 'other', type: 'int' }] }
  await client.register({ type: SchemaType.AVRO, schema: JSON.stringify(schema) }, { subject: 'node-avro' })
} catch (error) {
  refused = error.message
}
console.log(JSON.stringify({ made, refused, foreign: await client.decode(Buffer.from(foreign, 'hex')) }))
