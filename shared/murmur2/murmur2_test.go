package murmur2

import "testing"

// The vectors of Kafka's own UtilsTest.testMurmur2.
func TestMurmur2(t *testing.T) {
	for key, want := range map[string]int32{
		"21":                         -973932308,
		"foobar":                     -790332482,
		"a-little-bit-long-string":   -985981536,
		"a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
		"abc": 479470107,
	} {
		if got := int32(Hash([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

// A negative hash is masked, not negated.
func TestPartition(t *testing.T) {
	if got, want := Partition([]byte("foobar"), 7), int32((-790332482&0x7fffffff)%7); got != want {
		t.Errorf("partition %d, want %d", got, want)
	}
	seen := map[int32]bool{}
	for i := range 200 {
		p := Partition([]byte{byte(i), 'x'}, 4)
		if p < 0 || p > 3 {
			t.Fatalf("partition %d of 4", p)
		}
		seen[p] = true
	}
	if len(seen) != 4 {
		t.Errorf("200 keys reach only %d of 4 partitions", len(seen))
	}
}
