package replayer

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"tapedeck.dev/tapedeck/replayer/client"
	"tapedeck.dev/tapedeck/replayer/connect/connecttest"
	"tapedeck.dev/tapedeck/replayer/internal/replaytest"
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/secure"
	"tapedeck.dev/tapedeck/shared/session"
	"tapedeck.dev/tapedeck/shared/store/mem"
)

const foreignSchema = `{"type":"record","name":"Trip","fields":[{"name":"id","type":"long"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}],"connect.name":"Trip","connect.version":1}`

// serve runs the service until the test ends, and returns a client of it.
func serve(t *testing.T, sets ...string) *client.Client {
	t.Helper()
	port := filepath.Join(t.TempDir(), "port")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, frame(t, append(sets, "rest.listen=127.0.0.1:0", "rest.port.file="+port, "job.scan.interval=20ms")...))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	var addr string
	replaytest.Until(t, "the replayer is ready", func() bool {
		data, err := os.ReadFile(port)
		if err != nil {
			return false
		}
		addr = strings.TrimSpace(string(data))
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		return resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	})
	c, err := client.New("http://"+addr, secure.ClientSettings{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// foreign is an archive of the sink's, a registry, and a receiver.
type foreign struct {
	st   *mem.Store
	rc   *replaytest.Receiver
	sets []string
	jobs *mem.Store
}

func newForeign(t *testing.T) *foreign {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))
	f := &foreign{st: mem.Named(name), jobs: mem.Named(name + "-jobs"), rc: replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "h", Inputs: []string{"trips"}})}
	t.Cleanup(func() { mem.Forget(name); mem.Forget(name + "-jobs") })
	reg := srfake.New()
	t.Cleanup(reg.Close)
	srv := httptest.NewServer(reg.Handler())
	t.Cleanup(srv.Close)
	r, err := schema.NewRegistry(schema.Config{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	registered := `{"type":"record","name":"Trip","doc":"as produced","fields":[{"name":"id","type":"long"},{"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}}]}`
	for _, text := range []string{`"string"`, registered} {
		if _, err := r.Register(t.Context(), map[bool]string{true: "trips-value", false: "x"}[text == registered], text, "AVRO"); err != nil {
			t.Fatal(err)
		}
	}
	f.sets = []string{"store=mem://" + name, "jobs.store=mem://" + name + "-jobs", "store.layout=connect", "schema.registry.url=" + srv.URL, "connect.timestamp.field=at",
		"targets.proc.url=" + f.rc.URL, "targets.proc.pipeline=p", "replayer.id=me"}
	return f
}

// put writes an object of partition p: trips with ids = offsets.
func (f *foreign) put(t *testing.T, p int32, start, n int64, change ...func(*connecttest.Object)) string {
	o := connecttest.Object{Topic: "trips", Partition: p, Start: start, Schema: foreignSchema, Codec: "snappy", KeyFormat: ".avro", KeySchema: `"string"`, HeaderFormat: ".json"}
	for i := start; i < start+n; i++ {
		o.Rows = append(o.Rows, connecttest.Row{Value: map[string]any{"id": i, "at": 1000 + i}, Key: fmt.Sprint("k", i), Headers: []record.Header{{Key: "h", Value: []byte("x")}}})
	}
	for _, c := range change {
		c(&o)
	}
	return connecttest.Write(t, f.st, o)
}

func (f *foreign) keys(t *testing.T, st *mem.Store) []string {
	t.Helper()
	objs, _, err := st.List(t.Context(), "", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range objs {
		keys = append(keys, o.Key)
	}
	return keys
}

// ended starts a job and waits for its end.
func ended(t *testing.T, c *client.Client, request string) *manager.View {
	t.Helper()
	v, _, err := c.Start(t.Context(), []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	name := v.Name
	replaytest.Until(t, "job "+name+" ends", func() bool {
		if v, err = c.Get(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		return v.State == job.Completed || v.State == job.Failed
	})
	return v
}

func TestForeignArchiveIsReplayed(t *testing.T) {
	f := newForeign(t)
	f.put(t, 0, 0, 7)
	f.put(t, 0, 5, 5) // the same records of offsets 5 and 6 again
	f.put(t, 0, 12, 3)
	f.put(t, 1, 0, 4, func(o *connecttest.Object) { o.Width = 1 })
	before := f.keys(t, f.st)
	c := serve(t, f.sets...)

	request := `{"name":"all","target":"proc","promise":"recompute","onLost":"allow"}`
	plan, err := c.DryRun(t.Context(), []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join(plan.Partitions[0].Fidelity, "\n")
	for _, words := range []string{"timestamps: not kept by the sink; taken from the field at", "overlap: offsets [5, 7)", "hole: no object holds offsets [10, 12)", "keys: as Connect's converter read them"} {
		if !strings.Contains(said, words) {
			t.Errorf("the plan does not say %q: %s", words, said)
		}
	}
	if v := ended(t, c, request); v.State != job.Completed {
		t.Fatalf("%s: %s", v.State, v.Error)
	}
	value := avro.MustParse(foreignSchema)
	for p, want := range map[int32][]int64{0: {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14}, 1: {0, 1, 2, 3}} {
		var got []int64
		for _, r := range f.rc.Taken("all", record.TopicPartition{Topic: "trips", Partition: p}) {
			got = append(got, r.Offset)
			b, err := value.Encode(map[string]any{"id": r.Offset, "at": 1000 + r.Offset})
			if err != nil {
				t.Fatal(err)
			}
			full := record.Record{Topic: "trips", Partition: p, Offset: r.Offset, Timestamp: 1000 + r.Offset, Key: []byte(fmt.Sprint("k", r.Offset)),
				Value: append([]byte{0, 0, 0, 0, 2}, b...), Headers: []record.Header{{Key: "h", Value: []byte("x")}}}
			if !record.Equal(&r, &full) {
				t.Errorf("taken %+v, want %+v", r, full)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("partition %d: offsets %v, want %v", p, got, want)
		}
	}
	if after := f.keys(t, f.st); !slices.Equal(after, before) {
		t.Errorf("something was written into the archive of another: %v", after)
	}
	if jobs := f.keys(t, f.jobs); !slices.ContainsFunc(jobs, func(k string) bool { return strings.HasPrefix(k, "_tapedeck/jobs/all/") }) {
		t.Errorf("the job is not where jobs.store says: %v", jobs)
	}
}

func TestForeignArchiveIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		write   func(t *testing.T, f *foreign) (names []string)
		request string
		want    string
	}{
		"reproduce": {func(t *testing.T, f *foreign) []string { f.put(t, 0, 0, 3); return nil }, `{"name":"x","target":"proc"}`, `promise "reproduce" cannot be kept`},
		"hole": {func(t *testing.T, f *foreign) []string { f.put(t, 0, 0, 3); f.put(t, 0, 5, 3); return nil },
			`{"name":"x","target":"proc","promise":"recompute"}`, `offsets [3, 5) of trips-0, and nothing says why`},
		"contradiction": {func(t *testing.T, f *foreign) []string {
			one := f.put(t, 0, 0, 5)
			return []string{one, f.put(t, 0, 4, 2, func(o *connecttest.Object) { o.Rows[0].Key = "other" })}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "contradict each other: both hold offset 4"},
		"damage": {func(t *testing.T, f *foreign) []string {
			key := f.put(t, 0, 0, 200)
			damage(t, f, key)
			return []string{key}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "damaged object (planned for trips-0): object"},
		"truncated": {func(t *testing.T, f *foreign) []string {
			f.put(t, 0, 0, 5)
			key := f.put(t, 0, 5, 5)
			f.change(t, key, func(data []byte) []byte { return data[:len(data)-9] })
			return []string{key}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "the object ends too early"},
		"empty": {func(t *testing.T, f *foreign) []string {
			key := f.put(t, 0, 0, 5)
			f.change(t, key, func([]byte) []byte { return nil })
			return []string{key}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "not an Avro Object Container File"},
		"fewer keys than values": {func(t *testing.T, f *foreign) []string {
			f.put(t, 0, 0, 5)
			one := f.put(t, 0, 5, 5, func(o *connecttest.Object) { o.KeyFormat = "" })
			connecttest.Write(t, f.st, connecttest.Object{Topic: "trips", Start: 5, NoValues: true, KeyFormat: ".avro", KeySchema: `"string"`, Rows: make([]connecttest.Row, 0)})
			return []string{one, strings.TrimSuffix(one, ".avro") + ".keys.avro"}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "do not hold the same number of records"},
		"two names of one offset": {func(t *testing.T, f *foreign) []string {
			return []string{f.put(t, 0, 3, 5), f.put(t, 0, 3, 5, func(o *connecttest.Object) { o.Width = 1; o.Rows[2].Value = map[string]any{"id": 77, "at": 5} })}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "contradict each other: both hold offset 5"},
		"a stray object": {func(t *testing.T, f *foreign) []string {
			f.put(t, 0, 0, 5)
			f.st.Put("topics/trips/partition=0/part-0001.avro", []byte("x"))
			return []string{"topics/trips/partition=0/part-0001.avro"}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "it is not the S3 sink's"},
		"our own segment": {func(t *testing.T, f *foreign) []string {
			a := replaytest.New()
			tp := record.TopicPartition{Topic: "trips"}
			data, err := a.Store().Get(t.Context(), a.Segment(t, tp, 1, []record.Record{replaytest.Record(tp, 0, 1)}))
			if err != nil {
				t.Fatal(err)
			}
			key := f.put(t, 0, 0, 5)
			f.st.Put(key, data)
			return []string{key}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "set store.layout to tapedeck"},
		"windows": {func(t *testing.T, f *foreign) []string { f.put(t, 0, 0, 3); return nil },
			`{"name":"x","target":"proc","promise":"recompute","windows":{"from":0,"until":1000}}`, "windows of an archive that others wrote"},
		"no topic": {func(t *testing.T, f *foreign) []string { f.put(t, 0, 0, 3); return nil },
			`{"name":"x","target":"proc","promise":"recompute","topics":["other"]}`, "no topic other: mem://"},
		"an unknown schema": {func(t *testing.T, f *foreign) []string {
			return []string{f.put(t, 0, 0, 1, func(o *connecttest.Object) { o.Schema = strings.Replace(o.Schema, `"Trip"`, `"Other"`, 1) })}
		}, `{"name":"x","target":"proc","promise":"recompute"}`, "none of the 1 versions of subject trips-value"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForeign(t)
			names := c.write(t, f)
			v := ended(t, serve(t, f.sets...), c.request)
			if v.State != job.Failed || !strings.Contains(v.Error, c.want) {
				t.Errorf("%s: %s, want %q", v.State, v.Error, c.want)
			}
			for _, n := range names {
				if !strings.Contains(v.Error, n) {
					t.Errorf("%s does not name %s", v.Error, n)
				}
			}
		})
	}
}

// damage changes a byte in what the object's last block packs.
func damage(t *testing.T, f *foreign, key string) {
	t.Helper()
	f.change(t, key, func(data []byte) []byte {
		data[len(data)-20] ^= 0xff // before the last sync marker
		return data
	})
}

// change writes an object anew.
func (f *foreign) change(t *testing.T, key string, how func(data []byte) []byte) {
	t.Helper()
	data, err := f.st.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	f.st.Put(key, how(slices.Clone(data)))
}

// A damaged object is passed over where the request allows it: the rest arrives, and the job tells the gap.
func TestForeignDamageIsPassedOver(t *testing.T) {
	f := newForeign(t)
	f.put(t, 0, 0, 5)
	bad := f.put(t, 0, 5, 5)
	damage(t, f, bad)
	f.put(t, 0, 10, 5)
	v := ended(t, serve(t, f.sets...), `{"name":"x","target":"proc","promise":"recompute","onUnreadable":"skip"}`)
	if v.State != job.Completed || len(v.Gaps) != 1 || v.Gaps[0].Key != bad || v.Gaps[0].From != 5 || v.Gaps[0].To != 10 {
		t.Fatalf("%s: %s %+v", v.State, v.Error, v.Gaps)
	}
	var got []int64
	for _, r := range f.rc.Taken("x", record.TopicPartition{Topic: "trips"}) {
		got = append(got, r.Offset)
	}
	if want := []int64{0, 1, 2, 3, 4, 10, 11, 12, 13, 14}; !slices.Equal(got, want) {
		t.Errorf("offsets %v, want %v", got, want)
	}
}

// Speed and order go by the records' timestamps: those of the field, else there is nothing to go by.
func TestForeignPace(t *testing.T) {
	f := newForeign(t)
	for p := range int32(2) {
		f.put(t, p, 0, 5) // from 1970-01-01T00:00:01Z on
		f.put(t, p, 5, 5)
	}
	request := `{"name":%q,"target":"proc","promise":"recompute",%s}`
	c := serve(t, f.sets...)
	for name, field := range map[string]string{"speed": `"speed":1`, "order": `"order":"event-time","maxSkew":3`} {
		plan, err := c.DryRun(t.Context(), fmt.Appendf(nil, request, name, field))
		if err != nil {
			t.Fatal(err)
		}
		for _, ps := range plan.Partitions[1].Segments {
			if ps.MinTimestamp != 1000+ps.Start || ps.MaxTimestamp != 1004+ps.Start {
				t.Errorf("planned %+v", ps)
			}
		}
		if e := plan.Estimate; name == "speed" && (e == nil || e.Seconds != 0.009) {
			t.Errorf("estimated %+v, the timestamps span 9 ms", e)
		}
		if v := ended(t, c, fmt.Sprintf(request, name, field)); v.State != job.Completed || v.Totals.Records != 20 {
			t.Errorf("%s: %s: %s", name, v.State, v.Error)
		}
	}
	c = serve(t, append(slices.Clone(f.sets), "connect.timestamp.field=", "replayer.id=other")...)
	for name, field := range map[string]string{"timeless-speed": `"speed":1`, "timeless-order": `"order":"event-time"`} {
		if v := ended(t, c, fmt.Sprintf(request, name, field)); v.State != job.Failed || !strings.Contains(v.Error, "the archive keeps no timestamps: set connect.timestamp.field") {
			t.Errorf("%s: %s: %s", name, v.State, v.Error)
		}
	}
}

// A job that was planned under other settings is not carried on with other bytes.
func TestForeignSettingsChangedBetween(t *testing.T) {
	f := newForeign(t)
	f.put(t, 0, 0, 3)
	f.rc.Before = func(method, path string) int {
		if method == "PUT" && strings.Contains(path, "/segments/") {
			return 400
		}
		return 0
	}
	first := ended(t, serve(t, f.sets...), `{"name":"x","target":"proc","promise":"recompute"}`)
	if first.State != job.Failed || !strings.Contains(first.Error, "as the test wants") {
		t.Fatalf("%s: %s", first.State, first.Error)
	}
	c := serve(t, append(slices.Clone(f.sets), "connect.values=avro", "replayer.id=other")...)
	if _, err := c.Do(t.Context(), "x", job.Retry); err != nil {
		t.Fatal(err)
	}
	var v *manager.View
	replaytest.Until(t, "the job fails again", func() bool {
		var err error
		if v, err = c.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		return v.State == job.Failed && v.Error != first.Error
	})
	if !strings.Contains(v.Error, "was planned as topic id connect-") {
		t.Error(v.Error)
	}
}

func TestForeignSettings(t *testing.T) {
	base := []string{"store=mem://" + t.Name(), "store.layout=connect", "rest.listen=127.0.0.1:0", "startup.timeout=1s"}
	for want, sets := range map[string][]string{
		"jobs.store: with store.layout connect": {"schema.registry.url=http://127.0.0.1:9"},
		"no registry is given":                  {"jobs.store=mem://" + t.Name() + "-jobs"},
		"connect.file.delim":                    {"jobs.store=mem://" + t.Name() + "-jobs", "connect.values=avro", "connect.file.delim=0"},
		"jobs.store: ":                          {"jobs.store=nowhere"},
		"schema.registry.url":                   {"jobs.store=mem://" + t.Name() + "-jobs", "schema.registry.url=ftp://x"},
	} {
		err := Run(t.Context(), frame(t, append(slices.Clone(base), sets...)...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", sets, err, want)
		}
	}
}

// Jobs of our own archives can be kept elsewhere too.
func TestJobsStore(t *testing.T) {
	name := strings.ToLower(t.Name())
	jobs := mem.Named(name + "-jobs")
	t.Cleanup(func() { mem.Forget(name); mem.Forget(name + "-jobs") })
	rc := replaytest.NewReceiver(t, session.Pipeline{Name: "p", Hash: "h", Inputs: []string{"trips"}})
	c := serve(t, "store=mem://"+name, "jobs.store=mem://"+name+"-jobs", "targets.proc.url="+rc.URL, "targets.proc.pipeline=p")
	if v := ended(t, c, `{"name":"x","target":"proc","promise":"recompute"}`); v.State != job.Failed || !strings.Contains(v.Error, "no topic") {
		t.Errorf("%s: %s", v.State, v.Error)
	}
	objs, _, err := jobs.List(t.Context(), "_tapedeck/jobs/x/", "", 0)
	if err != nil || len(objs) == 0 {
		t.Errorf("%d entries, %v", len(objs), err)
	}
	objs, _, err = mem.Named(name).List(t.Context(), "_tapedeck/jobs/", "", 0)
	if err != nil || len(objs) != 0 {
		t.Errorf("the archive holds %v, %v", objs, err)
	}
}
