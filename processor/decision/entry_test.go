package decision

import (
	"reflect"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

func tp(p int32) record.TopicPartition { return record.TopicPartition{Topic: "trips", Partition: p} }

var samples = []struct {
	entry Entry
	text  string
}{
	{&Origin{PipelineHash: "ab12", Topics: map[string]OriginTopic{"trips": {ID: "mLvEVRyuS0CqYQqLkq7eZg", Start: map[int32]int64{0: 0, 1: 7, 10: 3}}}},
		`{"v":1,"kind":"origin","pipelineHash":"ab12","topics":{"trips":{"id":"mLvEVRyuS0CqYQqLkq7eZg","start":{"0":0,"1":7,"10":3}}}}`},
	{Floor{tp(3), 0, -1 << 62}, `{"v":1,"kind":"floor","topic":"trips","partition":3,"offset":0,"w":-4611686018427387904}`},
	{UnknownSchema{tp(0), 17, 4}, `{"v":1,"kind":"unknownSchema","topic":"trips","partition":0,"offset":17,"id":4}`},
}

func TestFormatIsTheDocumentedText(t *testing.T) {
	for _, s := range samples {
		if got := string(Format(s.entry)); got != s.text {
			t.Errorf("Format(%v)\n got %s\nwant %s", s.entry, got, s.text)
		}
		back, err := Parse([]byte(s.text))
		if err != nil || !reflect.DeepEqual(back, s.entry) {
			t.Errorf("Parse(%s) = %v, %v", s.text, back, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":          ``,
		"not an object":    `[]`,
		"newer version":    `{"v":2,"kind":"floor","topic":"t","partition":0,"offset":0,"w":1}`,
		"no version":       `{"kind":"floor","topic":"t","partition":0,"offset":0,"w":1}`,
		"unknown kind":     `{"v":1,"kind":"ceiling","topic":"t","partition":0,"offset":0,"w":1}`,
		"missing field":    `{"v":1,"kind":"floor","topic":"t","partition":0,"offset":0}`,
		"null field":       `{"v":1,"kind":"floor","topic":"t","partition":0,"offset":null,"w":1}`,
		"unknown field":    `{"v":1,"kind":"floor","topic":"t","partition":0,"offset":0,"w":1,"x":1}`,
		"another's field":  `{"v":1,"kind":"floor","topic":"t","partition":0,"offset":0,"w":1,"id":1}`,
		"other case":       `{"v":1,"kind":"floor","Topic":"t","partition":0,"offset":0,"w":1}`,
		"a second value":   `{"v":1,"kind":"floor","topic":"t","partition":0,"offset":0,"w":1}{}`,
		"negative offset":  `{"v":1,"kind":"floor","topic":"t","partition":0,"offset":-1,"w":1}`,
		"empty topic":      `{"v":1,"kind":"floor","topic":"","partition":0,"offset":0,"w":1}`,
		"fraction":         `{"v":1,"kind":"floor","topic":"t","partition":0,"offset":0.5,"w":1}`,
		"no partitions":    `{"v":1,"kind":"origin","pipelineHash":"a","topics":{"t":{"id":"x","start":{}}}}`,
		"no topic id":      `{"v":1,"kind":"origin","pipelineHash":"a","topics":{"t":{"id":"","start":{"0":0}}}}`,
		"no topics":        `{"v":1,"kind":"origin","pipelineHash":"a","topics":{}}`,
		"no pipeline hash": `{"v":1,"kind":"origin","pipelineHash":"","topics":{"t":{"id":"x","start":{"0":0}}}}`,
	} {
		if e, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: parsed as %v", name, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s.text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(Format(e))
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%s → %v → %v, %v", b, e, again, err)
		}
	})
}

func TestLogWantsOneOriginFirst(t *testing.T) {
	origin, floor := Format(samples[0].entry), Format(samples[1].entry)
	if _, err := ParseLog([][]byte{floor, origin}); err == nil || !strings.Contains(err.Error(), "before its origin") {
		t.Errorf("floor first: %v", err)
	}
	if _, err := ParseLog([][]byte{origin, origin}); err == nil || !strings.Contains(err.Error(), "second origin") {
		t.Errorf("two origins: %v", err)
	}
	l, err := ParseLog([][]byte{origin, floor, Format(samples[2].entry)})
	if err != nil {
		t.Fatal(err)
	}
	want := map[record.TopicPartition]int64{tp(0): 0, tp(1): 7, tp(10): 3, tp(3): 0}
	if got := l.Members(); !reflect.DeepEqual(got, want) {
		t.Errorf("members %v, want %v", got, want)
	}
	if !l.IsUnknown(tp(0), 17) || l.IsUnknown(tp(0), 16) || l.IsUnknown(tp(1), 17) {
		t.Error("unknown schemas are at the wrong place")
	}
}

func TestMissingFrom(t *testing.T) {
	live := &Log{Origin: &Origin{}, Floors: []Floor{{tp(3), 0, 5}, {tp(0), 10, 9}},
		Unknown: map[Place]UnknownSchema{{tp(0), 20}: {tp(0), 20, 4}}}
	all := &Log{Origin: &Origin{}, Floors: live.Floors, Unknown: live.Unknown}
	for _, c := range []struct {
		name  string
		have  *Log
		until map[record.TopicPartition]int64
		want  Entry
	}{
		{"nothing lacks", all, map[record.TopicPartition]int64{tp(0): 100, tp(3): 9}, nil},
		{"floor at the end itself", &Log{Floors: live.Floors[:1]}, map[record.TopicPartition]int64{tp(0): 10, tp(3): 9}, live.Floors[1]},
		{"floor beyond the end", &Log{Floors: live.Floors[:1]}, map[record.TopicPartition]int64{tp(0): 9, tp(3): 9}, nil},
		{"partition that the ranges do not have", &Log{}, map[record.TopicPartition]int64{tp(0): 9}, live.Floors[0]},
		{"unknown schema inside", &Log{Floors: live.Floors}, map[record.TopicPartition]int64{tp(0): 21, tp(3): 9}, UnknownSchema{tp(0), 20, 4}},
		{"unknown schema at the end is outside", &Log{Floors: live.Floors}, map[record.TopicPartition]int64{tp(0): 20, tp(3): 9}, nil},
	} {
		if got := live.MissingFrom(c.have, c.until, false); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	// An idle partition's newest floors lie at its end; a hold does without them where it knows the partition, and where the end is the range's.
	one, floors := map[record.TopicPartition]int64{tp(0): 10, tp(3): 9}, live.Floors
	known := &Log{Floors: []Floor{floors[0], {tp(0), 4, 1}}}
	for _, c := range []struct {
		name  string
		have  *Log
		until map[record.TopicPartition]int64
		hold  bool
		want  Entry
	}{
		{"hold", known, one, true, nil},
		{"drain", known, one, false, floors[1]},
		{"a partition that is not known", &Log{Floors: floors[:1]}, one, true, floors[1]},
		{"inside the range", known, map[record.TopicPartition]int64{tp(0): 11, tp(3): 9}, true, floors[1]},
		{"outside of all ranges", known, map[record.TopicPartition]int64{tp(3): 9}, true, floors[1]},
	} {
		if got := live.MissingFrom(c.have, c.until, c.hold); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
