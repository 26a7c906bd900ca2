package main

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"tapedeck.dev/tapedeck/replayer/job"
)

// fieldsOf are the names of a struct's fields in JSON.
func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			names = append(names, fieldsOf(f.Type)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

// Whatever a request can say, a flag says, of start or restore; plan has all of them.
func TestEveryRequestFieldHasAFlag(t *testing.T) {
	has := map[string]bool{}
	start, restore, plan := startCommand(), restoreCommand(), planCommand()
	for _, f := range requestFlags() {
		has[f.field] = true
		for cmd, want := range map[*cobra.Command]bool{start: f.targets&intoProcessor != 0, restore: f.targets&intoKafka != 0, plan: true} {
			if got := cmd.Flags().Lookup(f.name); (got != nil) != want {
				t.Errorf("%s --%s: %v, want %v", cmd.Name(), f.name, got != nil, want)
			}
		}
	}
	fields := fieldsOf(reflect.TypeFor[job.Request]())
	for _, name := range fields {
		if !has[name] {
			t.Errorf("no flag says %s", name)
		}
	}
	if len(fields) < 20 || len(has) != len(fields) {
		t.Errorf("%d fields, flags for %d", len(fields), len(has))
	}
}

// bodyOf is what the command line of plan makes of flags.
func bodyOf(args ...string) ([]byte, error) {
	var q request
	var body []byte
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
	q.register(cmd, intoAny)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		body, err = q.body(cmd)
		return err
	}
	cmd.SetArgs(args)
	cmd.SetOut(new(bytes.Buffer))
	err := cmd.Execute()
	return body, err
}

// Every flag says what its field's JSON says, and the replayer takes it.
func TestFlagsSayRequests(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range []struct{ flags, want string }{
		{"--topics a,b/2,b/0,c~2", `"topics":["a",{"name":"b","partitions":[2,0]},"c~2"]`},
		{"--topics a --topics-pattern x-.* --topics-pattern y{1,2}", `"topics":["a",{"pattern":"x-.*"},{"pattern":"y{1,2}"}]`},
		{"--topics-pattern x-.* --exclude a,b/1 --exclude-pattern x-y.*", `"topics":[{"pattern":"x-.*"}],"exclude":["a",{"name":"b","partitions":[1]},{"pattern":"x-y.*"}]`},
		{"--from 7 --until end", `"from":{"kind":"offset","value":7},"until":"end"`},
		{"--bounds a/0=5.. --bounds a/1=..9 --bounds b/0=earliest..9", `"bounds":{"a/0":{"from":{"kind":"offset","value":5}},"a/1":{"until":{"kind":"offset","value":9}},"b/0":{"from":"earliest","until":{"kind":"offset","value":9}}}`},
		{"--promise recompute --windows 2026-06-01T14:00:00Z..ms:1780326000000 --max-lag 90s", `"promise":"recompute","windows":{"from":1780322400000,"until":1780326000000,"maxLag":90000}`},
		{"--promise recompute --filter-key a --filter-key b,c --filter-key-prefix p --filter-header h=1=2 --filter-header any --filter-header empty=",
			`"promise":"recompute","filter":{"keys":["a","b,c"],"keyPrefix":"p","headers":[{"key":"h","value":"1=2"},{"key":"any"},{"key":"empty","value":""}]}`},
		{"--end-mode drain --schemas registry --on-lost allow", `"endMode":"drain","schemas":"registry","onLost":"allow"`},
		{"--promise recompute --on-unreadable skip", `"promise":"recompute","onUnreadable":"skip"`},
		{"--order event-time --max-skew 1m30s", `"order":"event-time","maxSkew":90000`},
		{"--speed max --records-per-second 5 --bytes-per-second 10MiB", `"speed":"max","recordsPerSecond":5,"bytesPerSecond":10485760`},
		{"--speed 0.5", `"speed":0.5`},
		{"--map-topic a=b --map-topic c=d --map-partition a/3=1", `"topicMapping":{"a":"b","c":"d"},"partitionMapping":{"a/3":1}`},
		{"--create-topics --replication-factor 3 --if-not-empty append --provenance-headers --registry same-ids",
			`"createTopics":true,"replicationFactor":3,"ifNotEmpty":"append","provenanceHeaders":true,"registry":"same-ids"`},
		{"--groups a,b --groups-pattern c.* --groups-until ms:5 --map-group a=z", `"groups":{"names":["a","b"],"pattern":"c.*","until":5,"mapping":{"a":"z"}}`},
	} {
		args := append(strings.Fields(c.flags), "--name", "n", "--target", "t")
		for _, a := range args {
			if name, ok := strings.CutPrefix(a, "--"); ok {
				seen[name] = true
			}
		}
		got, err := bodyOf(args...)
		if err != nil {
			t.Errorf("%s: %v", c.flags, err)
			continue
		}
		var a, b any
		want := `{"name":"n","target":"t",` + c.want + `}`
		if json.Unmarshal(got, &a) != nil || json.Unmarshal([]byte(want), &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s:\n%s, want\n%s", c.flags, got, want)
		}
		if _, err := job.ParseRequest(got); err != nil {
			t.Errorf("%s: %s: %v", c.flags, got, err)
		}
	}
	for _, f := range requestFlags() {
		if !seen[f.name] {
			t.Errorf("--%s is not tried", f.name)
		}
	}
	for flags, want := range map[string]string{
		"--max-lag 5s":              "--windows",
		"--bounds a/0":              "give trips/0=FROM..UNTIL",
		"--bounds a/0=..":           "give trips/0=FROM..UNTIL",
		"--bounds a/0=x..":          "an offset, a time",
		"--windows 14:00..15:00":    "give two times",
		"--map-topic a":             "give OLD=NEW",
		"--map-partition a/1=x":     "no number of a partition",
		"--topics a/x":              "topic/partition such as trips/0",
		"--speed fast":              "give max, or a factor",
		"--records-per-second many": "give a number",
		"--bytes-per-second 1X":     "64MiB",
		"--replication-factor x":    "no number",
		"--groups-until june":       "give a time",
	} {
		name, _, _ := strings.Cut(flags, " ")
		if _, err := bodyOf(strings.Fields(flags)...); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q, naming the flag", flags, err, want)
		}
	}
}

// What several flags say together replaces the whole field of a file, and leaves the others.
func TestFlagsReplaceFieldsOfAFile(t *testing.T) {
	file := t.TempDir() + "/r.json"
	writeFile(t, file, `{"name":"n","target":"t","topics":["old"],"groups":["old"],"createTopics":true,"from":{"kind":"offset","value":3}}`)
	got, err := bodyOf("-f", file, "--topics", "new", "--groups-pattern", "g.*", "--create-topics=false")
	want := `{"createTopics":false,"from":{"kind":"offset","value":3},"groups":{"pattern":"g.*"},"name":"n","target":"t","topics":["new"]}`
	if err != nil || string(got) != want {
		t.Errorf("%v %s, want %s", err, got, want)
	}
}
