package kafka

// Delivery is one record handed to a Handler. It counts as in flight until
// Finish.
type Delivery struct {
	Record

	owner *partition
	index int64
}

// Finish says that the record is durably claimed, answered or dead-lettered:
// its offset may be committed once everything before it is finished too. Finish
// may be called in any order, from any goroutine and again; what is finished after
// the partition was lost is not committed any more (G11).
func (d *Delivery) Finish() {
	d.owner.finish([]*Delivery{d})
}

// Live reports whether the partition still belongs to the consumer under the
// generation that delivered the record. Once false it stays false, and the
// record is delivered again to whoever owns the partition.
func (d *Delivery) Live() bool { return !d.owner.lost.Load() }

// Finish finishes many deliveries with one lock per run of the same partition.
func Finish(ds []*Delivery) {
	for start := 0; start < len(ds); {
		end := start + 1
		for end < len(ds) && ds[end].owner == ds[start].owner {
			end++
		}
		ds[start].owner.finish(ds[start:end])
		start = end
	}
}
