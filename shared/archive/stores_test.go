package archive_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/devstack/s3server"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/file"
	"tapedeck.dev/tapedeck/shared/store/s3"
)

// The archive over the stores that keep something: a directory, and an S3 server.
func TestOverRealStores(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		st, err := file.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		overStore(t, st)
	})
	t.Run("s3", func(t *testing.T) {
		endpoint, stop, err := s3server.Start(t.Context(), t.TempDir(), "127.0.0.1:0", "test-access", "test-secret-key", "bucket")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}()
		st, err := s3.New(t.Context(), s3.Options{Bucket: "bucket", Prefix: "some/prefix", Endpoint: endpoint, Region: "us-east-1", PathStyle: true,
			AccessKey: "test-access", SecretKey: "test-secret-key"})
		if err != nil {
			t.Fatal(err)
		}
		overStore(t, st)
		probeLocked(t, endpoint)
	})
}

// Under Object Lock nothing can be removed again: the probe passes at every start, on the objects of the first one.
func probeLocked(t *testing.T, endpoint string) {
	st, err := s3.New(t.Context(), s3.Options{
		Bucket: "locked", Endpoint: endpoint, Region: "us-east-1", AccessKey: "test-access", SecretKey: "test-secret-key",
		Protection: s3.Protection{LockMode: "COMPLIANCE", LockDays: 1, LegalHold: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	if err := st.MakeBucket(t.Context()); err != nil {
		t.Fatal(err)
	}
	var first int
	for start := range 3 {
		if err := archive.Probe(t.Context(), st); err != nil {
			t.Fatalf("start %d: %v", start, err)
		}
		objs, _, err := st.List(t.Context(), "", "", 0)
		if err != nil {
			t.Fatal(err)
		}
		if start == 0 {
			first = len(objs)
		}
		if len(objs) != first || first > 12 {
			t.Fatalf("start %d: %d objects, %d after the first", start, len(objs), first)
		}
	}
}

// overStore lets two writers that know nothing of each other race for one partition past an index object, and reads what
// they leave.
func overStore(t *testing.T, st store.Store) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	tp := record.TopicPartition{Topic: "trips", Partition: 3}
	const size, end = 4, 4 * (segment.IndexEvery + 6)
	var wg sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		wg.Go(func() { errs[i] = write(ctx, st, tp, size, end) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("writer %d: %v", i, err)
		}
	}

	a := archive.Open(st, "topics")
	if err := a.CheckForeign(ctx); err != nil {
		t.Error(err)
	}
	for _, hint := range []int64{-1, 0, end - size, end} {
		tail, err := a.Tail(ctx, tp.Topic, tp.Partition, hint)
		if err != nil || tail == nil || tail.Header.Next != end {
			t.Errorf("hint %d: %+v, %v", hint, tail, err)
		}
	}
	info, err := a.Inspect(ctx, tp)
	if err != nil || info.Records != end || info.Segments != end/size || info.Next != end {
		t.Errorf("%+v, %v", info, err)
	}
	p, err := a.Plan(ctx, archive.Request{TP: tp, From: archive.Bound{Kind: archive.AtTimestamp, Value: 100}, Until: archive.Bound{Kind: archive.AtTimestamp, Value: 120}})
	if err != nil || len(p.Segments) != 5 || p.From != 100 || p.Until != 120 {
		t.Errorf("%+v, %v", p, err)
	}
	r, err := a.Verify(ctx)
	if err != nil || len(r.Findings) > 0 || r.Records != end || r.Partitions != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := archive.Probe(ctx, st); err != nil { // the third time
		t.Error(err)
	}
}

// write is one writer: probe, tail, and segments of size records until the chain holds end.
func write(ctx context.Context, st store.Store, tp record.TopicPartition, size, end int64) error {
	if err := archive.Probe(ctx, st); err != nil {
		return err
	}
	a := archive.Open(st, "topics")
	tail, err := a.Tail(ctx, tp.Topic, tp.Partition, -1)
	if err != nil {
		return err
	}
	id := segment.LogIdentity{ClusterID: "c", TopicID: "id", Topic: tp.Topic, Partition: tp.Partition, Isolation: segment.ReadCommitted}
	for tail == nil || tail.Header.Next < end {
		start, chain := int64(0), segment.First()
		if tail != nil {
			start, chain = tail.Header.Next, segment.After(tail.Header, tail.Size)
		}
		w, err := segment.NewWriter(id, start, "")
		if err != nil {
			return err
		}
		for o := start; o < start+size; o++ {
			if _, err := w.Append(&record.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: o, Timestamp: o, Value: fmt.Append(nil, o)}); err != nil {
				return err
			}
		}
		data, h, err := w.Close(start+size, chain, nil)
		if err != nil {
			return err
		}
		out, err := a.Create(ctx, h, data, archive.RetryPolicy{Min: 10 * time.Millisecond, Max: 200 * time.Millisecond})
		if err != nil {
			return err
		}
		tail = &out.Tail
	}
	return nil
}
