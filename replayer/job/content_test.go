package job

import (
	"encoding/json"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

func TestContentFieldsAreChecked(t *testing.T) {
	const re = `,"promise":"recompute"`
	tests := []struct{ fields, want string }{ // "": taken
		{`,"onUnreadable":"fail"`, ""},
		{`,"onUnreadable":"skip"` + re, ""},
		{`,"onUnreadable":"skip"`, `ask for promise "recompute"`},
		{`,"onUnreadable":"retry"`, "give fail or skip"},
		{`,"filter":{"keys":["a"]}`, "the result cannot be what the live run had"},
		{`,"filter":{"keys":["a",{"base64":"/w=="},null],"keyPrefix":"b","headers":[{"key":"x"},{"key":"x","value":null}]}` + re, ""},
		{`,"filter":{}` + re, "chooses nothing"},
		{`,"filter":{"keys":[],"headers":[{"key":"x"}]}` + re, "keys is empty"},
		{`,"filter":{"keyPrefix":""}` + re, "keyPrefix is empty"},
		{`,"filter":{"keys":["a","a"]}` + re, "twice"},
		{`,"filter":{"keys":["a",{"base64":"YQ=="}]}` + re, "twice"}, // the same bytes
		{`,"filter":{"keys":[{"base64":"*"}]}` + re, "base64"},
		{`,"filter":{"keys":[{"base64":"YQ==","x":1}]}` + re, "give a string"},
		{`,"filter":{"keys":[1]}` + re, "give a string"},
		{`,"filter":{"key":["a"]}` + re, "keys, keyPrefix and headers"},
		{`,"filter":{"Keys":["a"]}` + re, "keys, keyPrefix and headers"},
		{`,"filter":{"headers":[{"value":"x"}]}` + re, "give {"},
		{`,"filter":{"headers":[{"key":""}]}` + re, "header's key is empty"},
		{`,"filter":{"headers":[{"key":"a"},{"key":"a"}]}` + re, "twice"},
		{`,"topics":[{"pattern":"a.*"}],"exclude":["ab",{"pattern":"b"}]`, ""},
		{`,"topics":[{"pattern":"a("}]`, "no RE2 expression"},
		{`,"topics":[{"pattern":"` + strings.Repeat("a", MaxPatternBytes+1) + `"}]`, "1024 are the most"},
		{`,"topics":[{"pattern":"a","name":"b"}]`, "give a name"},
		{`,"topics":[{"Name":"b"}]`, "give a name"},
		{`,"topics":[{}]`, "give a name"},
		{`,"topics":[""]`, "give a name"},
		{`,"topics":[null]`, "give a name"},
		{`,"topics":[{"pattern":"a"},{"pattern":"a"}]`, "twice"},
		{`,"exclude":["a~2"]`, "exclude takes its name in Kafka"},
		{`,"windows":{"from":0,"until":60000}`, `ask for promise "recompute"`},
		{`,"windows":{"from":"1970-01-01T00:00:00Z","until":"1970-01-01T01:01:00+01:00","maxLag":0}` + re, ""},
		{`,"windows":{"from":0,"until":0}` + re, "after from"},
		{`,"windows":{"from":0}` + re, "both from and until"},
		{`,"windows":{"from":null,"until":1}` + re, "from is null"},
		{`,"windows":{"from":"14:00","until":1}` + re, "give ms since 1970"},
		{`,"windows":{"from":"1970-01-01T00:00:00.0001Z","until":1}` + re, "between two milliseconds"},
		{`,"windows":{"from":0,"until":1,"maxLag":-1}` + re, "maxLag"},
		{`,"windows":{"from":0,"until":1,"max":1}` + re, "unknown field"},
		{`,"windows":{"from":0,"until":9223372036854775807}` + re, "event times reach"},
		{`,"windows":{"from":0,"until":1},"from":{"kind":"offset","value":1}` + re, "leave out from"},
	}
	for _, c := range tests {
		r, err := ParseRequest([]byte(`{"name":"a","target":"p"` + c.fields + `}`))
		if err == nil {
			err = r.CheckProcessor()
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.fields, err)
				continue
			}
			data, _ := json.Marshal(r)
			if again, err := ParseRequest(data); err != nil || !Same(r, again) {
				t.Errorf("%s does not come back: %v", data, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.200s: got %v, want %q", c.fields, err, c.want)
		}
	}
}

// The same request in other words is the same.
func TestCanonicalContent(t *testing.T) {
	parse := func(fields string) *Request {
		r, err := ParseRequest([]byte(`{"name":"a","target":"p","promise":"recompute"` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range [][2]string{
		{`,"onUnreadable":"fail"`, ``},
		{`,"filter":{"keys":["b",null,{"base64":"YQ=="},""]}`, `,"filter":{"keys":["",{"base64":"Yg=="},"a",null]}`},
		{`,"filter":{"headers":[{"key":"b"},{"value":"1","key":"a"}]}`, `,"filter":{"headers":[{"key":"a","value":{"base64":"MQ=="}},{"key":"b"}]}`},
		{`,"windows":{"from":"1970-01-01T00:00:01Z","until":2000}`, `,"windows":{"from":1000,"until":"1970-01-01T00:00:02.000Z"}`},
		{`,"topics":[{"pattern":"b"},"a",{"pattern":"a"}],"exclude":["z","y"]`, `,"topics":["a",{"pattern":"a"},{"name":"","pattern":"b"}],"exclude":["y","z"]`},
	} {
		if a, b := parse(c[0]), parse(c[1]); !Same(a, b) {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			t.Errorf("%s\n%s", x, y)
		}
	}
	if Same(parse(`,"filter":{"keys":[null]}`), parse(`,"filter":{"keys":[""]}`)) {
		t.Error("null is empty")
	}
}

func TestKeeper(t *testing.T) {
	rec := &record.Record{Key: []byte("ab"), Headers: []record.Header{{Key: "x", Value: []byte("1")}, {Key: "x", Value: nil}, {Key: "y", Value: []byte{}}}}
	null := &record.Record{}
	empty := &record.Record{Key: []byte{}}
	for _, c := range []struct {
		filter string
		rec    *record.Record
		want   bool
	}{
		{`{"keys":["ab"]}`, rec, true},
		{`{"keys":["a"]}`, rec, false},
		{`{"keyPrefix":"a"}`, rec, true},
		{`{"keyPrefix":"b"}`, rec, false},
		{`{"keys":["x"],"keyPrefix":"a"}`, rec, true}, // either
		{`{"keys":["x"],"keyPrefix":"b"}`, rec, false},
		{`{"keys":[null]}`, null, true},
		{`{"keys":[null]}`, empty, false},
		{`{"keys":[""]}`, null, false},
		{`{"keys":[""]}`, empty, true},
		{`{"keyPrefix":"a"}`, null, false},
		{`{"headers":[{"key":"x"}]}`, rec, true},
		{`{"headers":[{"key":"X"}]}`, rec, false},
		{`{"headers":[{"key":"x","value":"1"},{"key":"x","value":null}]}`, rec, true}, // each is among them
		{`{"headers":[{"key":"x","value":"2"}]}`, rec, false},
		{`{"headers":[{"key":"y","value":""}]}`, rec, true},
		{`{"headers":[{"key":"y","value":null}]}`, rec, false},
		{`{"headers":[{"key":"x","value":""}]}`, rec, false},
		{`{"keys":["ab"],"headers":[{"key":"z"}]}`, rec, false}, // both
		{`{"headers":[{"key":"x"}]}`, null, false},
	} {
		var f Filter
		if err := json.Unmarshal([]byte(c.filter), &f); err != nil {
			t.Fatal(err)
		}
		if got := f.Keeper().Keep(c.rec); got != c.want {
			t.Errorf("%s of key %q: %v", c.filter, c.rec.Key, got)
		}
	}
	if !(*Filter)(nil).Keeper().Keep(rec) {
		t.Error("without a filter something is left out")
	}
}
