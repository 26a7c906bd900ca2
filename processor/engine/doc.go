// Package engine computes a pipeline's results as a pure function of its input logs and decisions (docs/semantics.md). It takes no
// clock, logger, context or network; whoever feeds it may use any interleaving of partitions and any batch size.
//
// What happens to one record, in this order: it is decoded (else poison); its event time is read (else poison); it is future, or not; `where`,
// computed fields, group keys and aggregate arguments are evaluated (an error: poison); it is late, dropped by `where`, or added to its window;
// the maximum event time of its partition moves. Poison and future records move nothing; what `where` drops moves the maximum,
// because event time is a property of the source and filtering comes after it.
//
// Two rules are kept apart on purpose. Lateness is local: a record is compared with the watermark of its own partition, which is a function of
// that partition's log alone. Closing is global: a window closes when the minimum over all partitions passes its end. As that minimum is
// never above any partition's own watermark, a record that is on time can never meet a closed window; and as both depend on logs
// alone, no interleaving can change a result.
package engine
