package job

import (
	"encoding/json"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/pace"
)

func TestPaceOfARequest(t *testing.T) {
	const head = `{"name":"a","target":"p"`
	tests := []struct {
		fields string
		limits pace.Limits
		skew   int64
		same   string // the canonical form has these fields
	}{
		{``, pace.Limits{}, -1, ``},
		{`,"speed":"max","order":"partition"`, pace.Limits{}, -1, ``},
		{`,"speed":2.5`, pace.Limits{Speed: 2.5}, -1, `,"speed":2.5`},
		{`,"recordsPerSecond":10,"bytesPerSecond":1000,"speed":1`, pace.Limits{Speed: 1, RecordsPerSecond: 10, BytesPerSecond: 1000}, -1,
			`,"speed":1,"recordsPerSecond":10,"bytesPerSecond":1000`},
		{`,"order":"event-time"`, pace.Limits{}, DefaultMaxSkew, `,"order":"event-time","maxSkew":60000`},
		{`,"order":"event-time","maxSkew":0`, pace.Limits{}, 0, `,"order":"event-time","maxSkew":0`},
	}
	for _, c := range tests {
		r, err := ParseRequest([]byte(head + c.fields + `}`))
		if err != nil {
			t.Fatalf("%s: %v", c.fields, err)
		}
		skew, ordered := r.Skew()
		if !ordered {
			skew = -1
		}
		if r.Limits() != c.limits || skew != c.skew {
			t.Errorf("%s: limits %+v, skew %d", c.fields, r.Limits(), skew)
		}
		want, err := ParseRequest([]byte(head + c.same + `}`))
		if err != nil || !Same(r, want) {
			got, _ := json.Marshal(r)
			t.Errorf("%s is %s", c.fields, got)
		}
	}
	plain, _ := ParseRequest([]byte(head + `}`))
	if data, _ := json.Marshal(plain); strings.Contains(string(data), "speed") || strings.Contains(string(data), "maxSkew") || strings.Contains(string(data), "PerSecond") {
		t.Errorf("a request without limits is stored as %s", data)
	}
}

func TestPaceThatIsRefused(t *testing.T) {
	for fields, want := range map[string]string{
		`"speed":0`:                          `give "max", or a factor`,
		`"speed":-1`:                         `give "max", or a factor`,
		`"speed":1e9`:                        `give "max", or a factor`,
		`"speed":"fast"`:                     `give "max", or a factor`,
		`"speed":"2"`:                        `give "max", or a factor`,
		`"recordsPerSecond":0`:               "recordsPerSecond 0: give a whole number from 1",
		`"bytesPerSecond":-5`:                "bytesPerSecond -5: give a whole number from 1",
		`"recordsPerSecond":1.5`:             "recordsPerSecond",
		`"maxSkew":5`:                        `maxSkew holds for order "event-time" only`,
		`"order":"event-time","maxSkew":-1`:  "maxSkew is negative",
		`"order":"event time"`:               "give partition or event-time",
		`"order":"event-time","maxskew":100`: `did you mean "maxSkew"?`,
	} {
		_, err := ParseRequest([]byte(`{"name":"a","target":"p",` + fields + `}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", fields, err, want)
		}
	}
}
