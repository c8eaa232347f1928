# confluent-kafka (librdkafka): produce.py BROKERS TOPIC CODEC PARTITIONER TRANSACTION FILE
# PARTITIONER "-" is the client's own; TRANSACTION is none, commit or abort. FILE has KEY TAB VALUE lines.
import sys
from confluent_kafka import Producer

brokers, topic, codec, partitioner, transaction, file = sys.argv[1:7]
conf = {"bootstrap.servers": brokers, "compression.type": codec, "acks": "all"}
if partitioner != "-":
    conf["partitioner"] = partitioner
if transaction != "none":
    conf["transactional.id"] = "python-" + codec + "-" + transaction
producer = Producer(conf)
failed = []
if transaction != "none":
    producer.init_transactions(30)
    producer.begin_transaction()
for line in open(file, encoding="utf-8"):
    key, value = line.rstrip("\n").split("\t", 1)
    producer.produce(topic, key=key, value=value, on_delivery=lambda err, _: failed.append(err) if err else None)
if producer.flush(30) or failed:
    sys.exit("not delivered: %s" % failed)
if transaction == "commit":
    producer.commit_transaction(30)
if transaction == "abort":
    producer.abort_transaction(30)
