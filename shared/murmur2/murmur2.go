// Package murmur2 is the hash of Kafka's default partitioner.
package murmur2

import "encoding/binary"

// Partition is the partition that Kafka's default partitioner gives a record with this key (not null) in a topic of n partitions:
// toPositive(murmur2(key)) mod n. n > 0.
func Partition(key []byte, n int32) int32 {
	return int32(Hash(key)&0x7fffffff) % n
}

// Hash is Austin Appleby's MurmurHash2 (32 bits) with Kafka's seed, as in org.apache.kafka.common.utils.Utils.murmur2.
func Hash(data []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
