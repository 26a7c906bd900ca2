package segment_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

func seeds(f *testing.F) map[string][]byte {
	files, err := filepath.Glob(goldenDir + "/*.avro")
	if err != nil || len(files) == 0 {
		f.Fatal("no golden files", err)
	}
	m := map[string][]byte{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		m[filepath.Base(name)] = b
	}
	return m
}

// checkRead reads data. An error must be a *CorruptError; what reads well must be what a writer writes for the same input.
func checkRead(t *testing.T, data []byte) {
	h, recs, err := readAll(data)
	if err != nil {
		var corrupt *segment.CorruptError
		if !errors.As(err, &corrupt) || corrupt.Offset < 0 || corrupt.Offset > int64(len(data)) {
			t.Fatalf("error %#v", err)
		}
		return
	}
	if int64(len(recs)) != h.Count {
		t.Fatalf("%d records, the header says %d", len(recs), h.Count)
	}
	w, err := segment.NewWriter(h.Identity(), h.Start, h.Codec)
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		recs[i].LeaderEpoch = h.LastEpoch
		if _, err := w.Append(&recs[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range h.Skipped {
		if err := w.Skip(s.From, s.To, s.Class); err != nil {
			t.Fatal(err)
		}
	}
	// What the segment inherited is in its header only in sum: take the sum as inherited.
	c := segment.Chain{Ordinal: h.Ordinal, Rows: h.Rows, RunningMaxTimestamp: h.RunningMaxTimestamp, LastOffset: -1, LastEpoch: record.NoEpoch}
	if h.Count == 0 {
		c.LastOffset, c.LastEpoch, c.LastHash = h.LastOffset, h.LastEpoch, h.LastHash
	}
	again, h2, err := w.Close(h.Next, c, h.Schemas)
	if err != nil {
		t.Fatal(err)
	}
	h2.MaxBlockBytes = h.MaxBlockBytes // a foreign file may end its blocks elsewhere
	if d := cmp.Diff(h, h2); d != "" {
		t.Fatalf("header (-read +written again):\n%s", d)
	}
	_, back, err := readAll(again)
	if err != nil {
		t.Fatal(err)
	}
	wantRecords(t, back, recs)
}

func FuzzReader(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(checkRead)
}

// FuzzBlocks puts arbitrary bytes behind valid headers.
func FuzzBlocks(f *testing.F) {
	all := seeds(f)
	names := []string{"plain.avro", "empty.avro", "full.avro", "blocks.avro", "shapes-null.avro", "shapes-deflate.avro", "shapes-snappy.avro", "shapes-zstandard.avro"}
	var heads [][]byte
	for i, name := range names {
		_, body, err := segment.ParseHeader(name, all[name])
		if err != nil {
			f.Fatal(err)
		}
		heads = append(heads, all[name][:body])
		f.Add(uint8(i), all[name][body:])
	}
	f.Fuzz(func(t *testing.T, which uint8, blocks []byte) {
		checkRead(t, append(bytes.Clone(heads[int(which)%len(heads)]), blocks...))
	})
}

// FuzzHeader puts a valid beginning and checksum before arbitrary metadata.
func FuzzHeader(f *testing.F) {
	for name, b := range seeds(f) {
		if _, body, err := segment.ParseHeader(name, b); err == nil {
			count, rest := segment.Unseal(b[:body])
			f.Add(count, rest)
		}
	}
	f.Fuzz(func(t *testing.T, count int64, rest []byte) {
		head := segment.Seal(count, rest)
		h, body, err := segment.ParseHeader("object", head)
		if err != nil {
			var corrupt *segment.CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("error %#v", err)
			}
			return
		}
		if body != int64(len(head)) {
			t.Fatalf("header ends at %d of %d", body, len(head))
		}
		again, err := segment.EncodeHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		h2, _, err := segment.ParseHeader("object", again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(h, h2); d != "" {
			t.Fatalf("-read +written again:\n%s", d)
		}
		// Where nothing was optional and the JSON was spelled as ours, there is one spelling only.
		if len(h.Schemas) == 0 && !bytes.Contains(head, []byte("tapedeck.opt.")) && len(h.Skipped) < 1000 && !bytes.Equal(again, head) {
			t.Fatalf("two spellings of one header:\n%q\n%q", head, again)
		}
	})
}
