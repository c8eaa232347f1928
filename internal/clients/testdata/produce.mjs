// kafkajs: produce.mjs BROKERS TOPIC CODEC TRANSACTION FILE
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";
import snappy from "kafkajs-snappy";

const { Kafka, Partitioners, CompressionTypes, CompressionCodecs, logLevel } = kafkajs;
CompressionCodecs[CompressionTypes.Snappy] = snappy;
const [brokers, topic, codec, transaction, file] = process.argv.slice(2);
const compression = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy }[codec];
const messages = readFileSync(file, "utf8").trimEnd().split("\n").map((line) => {
  const at = line.indexOf("\t");
  return { key: line.slice(0, at), value: line.slice(at + 1) };
});
const kafka = new Kafka({ clientId: "kafkajs", brokers: brokers.split(","), logLevel: logLevel.ERROR });
const transactional = transaction !== "none";
const producer = kafka.producer({
  createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: false,
  ...(transactional ? { transactionalId: `kafkajs-${codec}-${transaction}`, maxInFlightRequests: 1, idempotent: true } : {}),
});
await producer.connect();
if (transactional) {
  const tx = await producer.transaction();
  await tx.send({ topic, compression, acks: -1, messages });
  await (transaction === "commit" ? tx.commit() : tx.abort());
} else {
  await producer.send({ topic, compression, acks: -1, messages });
}
await producer.disconnect();
