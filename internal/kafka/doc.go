// Package kafka is the one owner of the Kafka client library: everything else
// in settleonce consumes, publishes and asks the cluster through it.
//
// Its promises, and the guarantees of the design they serve:
//
//   - A [Consumer] hands each partition's records to its handler in offset
//     order, commits only what is finished without a hole before it, only under
//     the generation that owned the partition, and never backwards (G5, G11).
//   - A record written inside an aborted transaction is never handed out (G16).
//   - A [Publisher] reports success only for what all in-sync replicas have;
//     any error means "unknown": publish again with the same key.
//   - A [FencedProducer] numbers its batches, so that the broker drops a
//     repeated batch and refuses an old owner once the new one wrote to the
//     partition (G10).
//
// The package imports nothing of ours and starts no goroutine in a constructor.
package kafka
