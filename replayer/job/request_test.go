package job

import (
	"encoding/json"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
)

func TestParseRequestDefaultsAndCanonicalForm(t *testing.T) {
	a, err := ParseRequest([]byte(`{"name":"june-1","target":"p"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"june-1","target":"p","from":"earliest","until":"end","promise":"reproduce","endMode":"hold","order":"partition","onLost":"fail","schemas":"segment"}`
	if got, _ := json.Marshal(a); string(got) != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	b, err := ParseRequest([]byte(` {"onLost":"fail","until":{"kind":"end"},"bounds":{},"from":{"kind":"earliest"},"target":"p","name":"june-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	if !Same(a, b) {
		t.Error("the same request in other words is another")
	}
	c, err := ParseRequest([]byte(`{"name":"june-1","target":"p","topics":[{"name":"b","partitions":[3,1]},"a"],"until":{"kind":"offset","value":0}}`))
	if err != nil {
		t.Fatal(err)
	}
	if Same(a, c) {
		t.Error("another request is the same")
	}
	data, _ := json.Marshal(c)
	if !strings.Contains(string(data), `"topics":["a",{"name":"b","partitions":[1,3]}]`) || !strings.Contains(string(data), `"until":{"kind":"offset","value":0}`) {
		t.Errorf("canonical form %s", data)
	}
	d, err := ParseRequest(data)
	if err != nil || !Same(c, d) {
		t.Errorf("the canonical form does not come back: %v", err)
	}
}

func TestEndsOf(t *testing.T) {
	r, err := ParseRequest([]byte(`{"name":"a","target":"p","promise":"recompute","from":{"kind":"offset","value":5},"bounds":{"x.y/12":{"until":{"kind":"timestamp","value":9}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	from, until := r.EndsOf(record.TopicPartition{Topic: "x.y", Partition: 12})
	if from != (Bound{Offset, 5}) || until != (Bound{Timestamp, 9}) {
		t.Errorf("got %s to %s", from, until)
	}
	if _, until := r.EndsOf(record.TopicPartition{Topic: "x.y", Partition: 1}); until.Kind != End {
		t.Errorf("got %s", until)
	}
}

func TestParseRequestSaysWhatIsWrong(t *testing.T) {
	tests := []struct{ body, want string }{
		{`[]`, "not a JSON object"},
		{`{"name":"a","target":"p"} {}`, "not a JSON object"},
		{`{"target":"p"}`, "name"},
		{`{"name":"A","target":"p"}`, "a-z, 0-9 and -"},
		{`{"name":"../x","target":"p"}`, "a-z, 0-9 and -"},
		{`{"name":"` + strings.Repeat("a", 65) + `","target":"p"}`, "1 to 64"},
		{`{"name":"a"}`, "target is missing"},
		{`{"name":"a","target":"p","topic":["x"]}`, `did you mean "topics"?`},
		{`{"name":"a","target":"p","endmode":"hold"}`, `did you mean "endMode"?`},
		{`{"name":"a","target":"p","Name":"b"}`, `did you mean "name"?`},
		{`{"name":"a","target":"p","xylophone":1}`, "known: name, target"},
		{`{"name":"a","target":"p","endMode":"continue"}`, "not in this version"},
		{`{"name":"a","target":"p","order":"random"}`, `"random" is unknown; give partition`},
		{`{"name":"a","target":"p","promise":"hope"}`, "give reproduce or recompute"},
		{`{"name":"a","target":"p","onLost":"skip"}`, "give fail or allow"},
		{`{"name":"a","target":"p","schemas":"guess"}`, "give segment or registry"},
		{`{"name":"a","target":"p","topics":["a","a"]}`, "twice"},
		{`{"name":"a","target":"p","topics":["a*"]}`, "not a topic's name; a pattern is"},
		{`{"name":"a","target":"p","topics":["a/../b"]}`, "not a topic's name"},
		{`{"name":"a","target":"p","topics":[{"name":"a","partitions":[1,1]}]}`, "twice"},
		{`{"name":"a","target":"p","topics":[{"name":"a","partition":1}]}`, `{"name": "trips", "partitions": [0, 1]}`},
		{`{"name":"a","target":"p","from":"end"}`, "nothing to replay"},
		{`{"name":"a","target":"p","until":"earliest"}`, "nothing to replay"},
		{`{"name":"a","target":"p","from":"yesterday"}`, `"earliest"`},
		{`{"name":"a","target":"p","from":{"kind":"offset"}}`, "needs a value"},
		{`{"name":"a","target":"p","from":{"kind":"offset","value":-1}}`, "≥ 0"},
		{`{"name":"a","target":"p","from":{"kind":"offset","val":1}}`, "bound"},
		{`{"name":"a","target":"p","from":{"kind":"earliest","value":1}}`, "takes no value"},
		{`{"name":"a","target":"p","from":{"kind":"epoch","value":1}}`, "unknown"},
		{`{"name":"a","target":"p","from":{"kind":"timestamp","value":1}}`, "recompute"},
		{`{"name":"a","target":"p","bounds":{"a":{"from":"earliest"}}}`, "topic/partition"},
		{`{"name":"a","target":"p","bounds":{"a/01":{"from":"earliest"}}}`, `write it as "a/1"`},
		{`{"name":"a","target":"p","bounds":{"a/1":{}}}`, "neither"},
		{`{"name":"a","target":"p","bounds":{"a/1":{"until":{"kind":"timestamp","value":1}}}}`, "recompute"},
		{`{"name":"a","target":"p","bounds":{"a/1":{"form":"earliest"}}}`, "form"},
		{`{"name":"a","target":"p","bounds":{"a/1":{"From":"earliest","until":"end"}}}`, `unknown field "From"`},
		{`{"name":"a","target":"p","bounds":{"a/1":{"from":null,"until":"end"}}}`, "from is null"},
		{`{"name":"a","target":"p","bounds":{"a/1":null}}`, "bounds"},
		{`{"name":"a","target":"p","from":{"Kind":"offset","value":1}}`, "give"},
		{`{"name":"a","target":"p","from":{"kind":"earliest","value":null}}`, "give"},
		{`{"name":"a","target":"p","from":{"kind":"offset","value":9223372036854775808}}`, "give"},
		{`{"name":"a","target":"p","from":{"kind":"offset","value":-1}}`, "≥ 0"},
		{`{"name":"a","target":"p","from":{"kind":"offset","value":1.5}}`, "give"},
		{`{"name":"a","target":"p","topics":[]}`, "topics is empty"},
		{`{"name":"a","target":"p","topics":[{"name":"a","partitions":[]}]}`, "partitions is empty"},
		{`{"name":"a","target":"p","exclude":[{"pattern":"a.*","partitions":[]}]}`, "partitions is empty"},
		{`{"name":"a","target":"p","topics":[{"name":"a","partitions":[2147483648]}]}`, "partitions"},
		{`{"name":"a","target":"p","topics":[{"name":"a","partitions":[-1]}]}`, "negative"},
		{`{"name":"a","target":"p","recordsPerSecond":9223372036854775808}`, "recordsPerSecond"},
		{`{"name":"a","target":"p","speed":1e400}`, "give"},
		{`{"name":"a","target":"p","speed":"NaN"}`, "give"},
		{`{"name":"a","target":"p","speed":-1}`, "give"},
		{`{"name":"a","target":"p","speed":0}`, "give"},
		{`{"name":"a","target":"p","topics":"x"}`, "request"},
		{`{"name":"a","target":"p","createTopics":true}`, "createTopics is for a target of type kafka"},
		{`{"name":"a","target":"p","replicationFactor":3}`, "needs createTopics"},
		{`{"name":"a","target":"p","ifNotEmpty":"skip"}`, "give fail or append"},
		{`{"name":"a","target":"p","topicMapping":{"a~2":"b"}}`, "not a topic's name"},
		{`{"name":"a","target":"p","topicMapping":{"a":"b/c"}}`, "not a name that a topic can have"},
		{`{"name":"a","target":"p","partitionMapping":{"a":1}}`, "partitionMapping"},
		{`{"name":"a","target":"p","partitionMapping":{"a/1":-1}}`, "negative"},
		{`{"name":"a","target":"p","groups":["x"]}`, "groups is for a target of type kafka"},
		{`{"name":"a","target":"p","registry":"restore"}`, "registry is for a target of type kafka"},
		{`{"name":"a","target":"p","registry":"copy"}`, "give none, restore or same-ids"},
		{`{"name":"a","target":"p","groups":[]}`, "chooses none"},
		{`{"name":"a","target":"p","groups":["x","x"]}`, "twice"},
		{`{"name":"a","target":"p","groups":{"pattern":"("}}`, "pattern"},
		{`{"name":"a","target":"p","groups":{"regex":"x"}}`, "give names"},
		{`{"name":"a","target":"p","groups":{"names":["x"],"until":-1}}`, "before 1970"},
		{`{"name":"a","target":"p","groups":{"pattern":".*","mapping":{"x":"z","y":"z"}}}`, "would both be z"},
		{`{"name":"` + strings.Repeat("a", MaxRequestBytes) + `"}`, "bytes"},
	}
	for _, c := range tests {
		r, err := ParseRequest([]byte(c.body))
		if err == nil {
			err = r.CheckProcessor()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.120s: got %v, want %q", c.body, err, c.want)
		}
	}
}

func TestCheckKafkaSaysWhatIsWrong(t *testing.T) {
	for body, want := range map[string]string{
		`{"name":"a","target":"p"}`:                                                                            "topics is missing",
		`{"name":"a","target":"p","topics":["x"],"promise":"recompute"}`:                                       "promise",
		`{"name":"a","target":"p","topics":["x"],"endMode":"drain"}`:                                           "endMode",
		`{"name":"a","target":"p","topics":["x"],"schemas":"registry"}`:                                        "schemas",
		`{"name":"a","target":"p","topics":["x"],"until":{"kind":"timestamp","value":1},"ifNotEmpty":"fail"}`:  "",
		`{"name":"a","target":"p","topics":["x"],"groups":{"pattern":"b-.*","until":5},"registry":"same-ids"}`: "",
	} {
		r, err := ParseRequest([]byte(body))
		if err == nil {
			err = r.CheckKafka()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
		if r != nil && r.IfNotEmpty != "" {
			t.Errorf("%s: the default in words is another request", body)
		}
	}
}

func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(`{"name":"a","target":"p","topics":["b",{"name":"c","partitions":[1]}],"bounds":{"b/1":{"from":{"kind":"offset","value":3}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRequest(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ParseRequest(again)
		if err != nil || !Same(r, s) {
			t.Fatalf("%s does not come back: %v", again, err)
		}
	})
}

// TestGroupsAreCanonical: two ways to ask for the same are equal, and what was not asked for is not in the stored request.
func TestGroupsAreCanonical(t *testing.T) {
	parse := func(fields string) *Request {
		t.Helper()
		r, err := ParseRequest([]byte(`{"name":"a","target":"p","topics":["x"]` + fields + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if !Same(parse(`,"groups":["b","a"],"registry":"none"`), parse(`,"groups":{"names":["a","b"],"mapping":{}}`)) {
		t.Error("not the same")
	}
	if Same(parse(`,"groups":["a"]`), parse(``)) || Same(parse(`,"groups":["a"]`), parse(`,"groups":{"names":["a"],"until":0}`)) {
		t.Error("the same")
	}
	data, err := json.Marshal(parse(``))
	if err != nil || strings.Contains(string(data), "groups") || strings.Contains(string(data), "registry") {
		t.Errorf("%s, %v", data, err)
	}
	chooses, err := parse(`,"groups":{"names":["x"],"pattern":"b-.*"}`).Groups.Chooses()
	if err != nil || !chooses("x") || !chooses("b-1") || chooses("ab-1") || chooses("y") {
		t.Errorf("choice, %v", err)
	}
}
