package segment_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/segment"
)

func TestNameFormat(t *testing.T) {
	for _, c := range []struct {
		name segment.Name
		want string
	}{
		{segment.Name{TopicsDir: "topics", Topic: "trips", Partition: 0, Start: 0},
			"topics/trips/partition=0/trips+0+00000000000000000000.avro"},
		{segment.Name{TopicsDir: "a/b", Topic: "x.avro", Partition: 12, Start: 345},
			"a/b/x.avro/partition=12/x.avro+12+00000000000000000345.avro"},
		{segment.Name{TopicsDir: "topics", Topic: "a.b_c-d", Partition: math.MaxInt32, Start: math.MaxInt64},
			"topics/a.b_c-d/partition=2147483647/a.b_c-d+2147483647+09223372036854775807.avro"},
		{segment.Name{TopicsDir: "topics", Topic: "trips~2", Partition: 1, Start: 7},
			"topics/trips~2/partition=1/trips~2+1+00000000000000000007.avro"},
		{segment.Name{TopicsDir: "topics", Topic: "partition=1"[:9], Partition: 1, Start: 7},
			"topics/partition/partition=1/partition+1+00000000000000000007.avro"},
	} {
		if got := c.name.Format(); got != c.want {
			t.Errorf("Format %+v = %q, want %q", c.name, got, c.want)
		}
		got, err := segment.ParseName(c.name.TopicsDir, c.want)
		if err != nil || got != c.name {
			t.Errorf("ParseName(%q) = %+v, %v", c.want, got, err)
		}
	}
}

func TestNamesSortAsStarts(t *testing.T) {
	var keys []string
	for _, start := range []int64{0, 1, 9, 10, 99, 100, math.MaxInt32, math.MaxInt64 - 1, math.MaxInt64} {
		keys = append(keys, segment.Name{TopicsDir: "topics", Topic: "t", Partition: 4, Start: start}.Format())
	}
	if !slices.IsSorted(keys) {
		t.Errorf("not sorted: %q", keys)
	}
}

func TestPartitionPrefixIsNoOthers(t *testing.T) {
	topics := []string{"t", "tt", "t.avro", "t-1", "t~2", "t~22", "partition", "t_partition"}
	for _, a := range topics {
		for _, b := range topics {
			for _, pa := range []int32{1, 10, 11} {
				for _, pb := range []int32{1, 10, 11} {
					key := segment.Name{TopicsDir: "topics", Topic: b, Partition: pb, Start: 1}.Format()
					own := a == b && pa == pb
					if got := strings.HasPrefix(key, segment.PartitionPrefix("topics", a, pa)); got != own {
						t.Errorf("prefix of %s-%d begins %s: %v", a, pa, key, got)
					}
				}
			}
		}
	}
}

func TestParseNameRefuses(t *testing.T) {
	for _, key := range []string{
		"",
		"topics",
		"topics/",
		"trips/partition=0/trips+0+00000000000000000000.avro",
		"other/trips/partition=0/trips+0+00000000000000000000.avro",
		"topics/trips/partition=0/trips+0+00000000000000000000.avro/",
		"topics//partition=0/+0+00000000000000000000.avro",
		"topics/./partition=0/.+0+00000000000000000000.avro",
		"topics/../partition=0/..+0+00000000000000000000.avro",
		"topics/tr ips/partition=0/tr ips+0+00000000000000000000.avro",
		"topics/tr+ips/partition=0/tr+ips+0+00000000000000000000.avro",
		"topics/trips/partition=0/trips+0+00000000000000000000",
		"topics/trips/partition=0/trips+0+00000000000000000000.parquet",
		"topics/trips/partition=0/trips+0+00000000000000000000.avro.tmp",
		"topics/trips/partition=0/trips+0+00000000000000000000.AVRO",
		"topics/trips/partition=0/trips+0+0000000000000000000.avro",   // 19 digits
		"topics/trips/partition=0/trips+0+000000000000000000000.avro", // 21 digits
		"topics/trips/partition=0/trips+0+0000000000.avro",            // Connect's default padding
		"topics/trips/partition=0/trips+0+-0000000000000000001.avro",
		"topics/trips/partition=0/trips+0++0000000000000000001.avro",
		"topics/trips/partition=0/trips+0+0000000000000000000a.avro",
		"topics/trips/partition=0/trips+0+0000000000000000_001.avro",
		"topics/trips/partition=0/trips+0+09223372036854775808.avro", // 2^63
		"topics/trips/partition=0/trips+0+18446744073709551615.avro",
		"topics/trips/partition=0/trips+0+99999999999999999999.avro",
		"topics/trips/partition=0/trips+1+00000000000000000000.avro",
		"topics/trips/partition=0/trips2+0+00000000000000000000.avro",
		"topics/trips/partition=00/trips+00+00000000000000000000.avro",
		"topics/trips/partition=00/trips+0+00000000000000000000.avro",
		"topics/trips/partition=+0/trips+0+00000000000000000000.avro",
		"topics/trips/partition=-1/trips+-1+00000000000000000000.avro",
		"topics/trips/partition=2147483648/trips+2147483648+00000000000000000000.avro",
		"topics/trips/partition=/trips++00000000000000000000.avro",
		"topics/trips/Partition=0/trips+0+00000000000000000000.avro",
		"topics/trips/0/trips+0+00000000000000000000.avro",
		"topics/trips/partition=0/x/trips+0+00000000000000000000.avro",
		"topics/trips~1/partition=0/trips~1+0+00000000000000000000.avro",
		"topics/trips~02/partition=0/trips~02+0+00000000000000000000.avro",
		"topics/trips~2~2/partition=0/trips~2~2+0+00000000000000000000.avro",
		"topics/~2/partition=0/~2+0+00000000000000000000.avro",
		"topics/trips/partition=0/.avro",
		"topics/" + strings.Repeat("a", 250) + "/partition=0/" + strings.Repeat("a", 250) + "+0+00000000000000000000.avro",
	} {
		if n, err := segment.ParseName("topics", key); err == nil {
			t.Errorf("ParseName(%q) = %+v, want an error", key, n)
		}
	}
	for _, dir := range []string{"", "/", "/topics", "topics/"} {
		key := segment.Name{TopicsDir: dir, Topic: "t"}.Format()
		if n, err := segment.ParseName(dir, key); err == nil {
			t.Errorf("ParseName(%q, %q) = %+v, want an error", dir, key, n)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, topic := range []string{"trips", "x.avro", "a-b_c.d", "t~2", "partition=1"} {
		f.Add("topics", segment.Name{TopicsDir: "topics", Topic: topic, Partition: 3, Start: 77}.Format())
	}
	f.Add("a/b", "a/b/t/partition=0/t+0+09223372036854775807.avro")
	f.Fuzz(func(t *testing.T, dir, key string) {
		n, err := segment.ParseName(dir, key)
		if err != nil {
			if n != (segment.Name{}) {
				t.Fatalf("name %+v with error %v", n, err)
			}
			return
		}
		if n.Format() != key {
			t.Fatalf("ParseName(%q) = %+v, which formats as %q", key, n, n.Format())
		}
		if n.Start < 0 || n.Partition < 0 || !segment.ValidTopic(n.Topic) || !strings.HasPrefix(key, segment.PartitionPrefix(dir, n.Topic, n.Partition)) {
			t.Fatalf("ParseName(%q) = %+v", key, n)
		}
	})
}

func FuzzFormatName(f *testing.F) {
	f.Add("topics", "trips", int32(0), int64(0))
	f.Add("a/b", "x.avro", int32(math.MaxInt32), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, dir, topic string, p int32, start int64) {
		n := segment.Name{TopicsDir: dir, Topic: topic, Partition: p, Start: start}
		got, err := segment.ParseName(dir, n.Format())
		legal := dir != "" && !strings.HasPrefix(dir, "/") && !strings.HasSuffix(dir, "/") && segment.ValidTopic(topic) && p >= 0 && start >= 0
		if legal != (err == nil) || legal && got != n {
			t.Fatalf("%+v: %+v, %v", n, got, err)
		}
	})
}

func TestIncarnations(t *testing.T) {
	for name, want := range map[string]struct {
		topic string
		n     int
	}{"trips": {"trips", 1}, "trips~2": {"trips", 2}, "a.b_c-d~2147483647": {"a.b_c-d", math.MaxInt32}} {
		if topic, n := segment.SplitTopic(name); topic != want.topic || n != want.n || segment.Incarnation(topic, n) != name || !segment.ValidTopic(name) {
			t.Errorf("%s: %s, %d", name, topic, n)
		}
	}
}
