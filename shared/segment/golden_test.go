package segment_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
)

// The golden files are the format: every later version of this package must read them. Writing other bytes for the same records
// (a compressor's new version) is allowed only together with new files beside the old ones.
var update = flag.Bool("update", false, "write testdata/golden anew: only while the format is not released")

const goldenDir = "testdata/golden"

// golden is what stands beside each golden file, as JSON.
type golden struct {
	Header  *segment.Header
	Records []record.Record
}

// goldenSegments are the positive ones, by file name.
func goldenSegments(t testing.TB) map[string]func() ([]byte, *segment.Header) {
	id, all := shapes()
	var recs []record.Record
	for _, r := range all {
		if segment.Size(&r) < 20_000 {
			for j := range r.Headers { // other readers want Avro's strings to be UTF-8
				r.Headers[j].Key = strings.ToValidUTF8(r.Headers[j].Key, "?")
			}
			r.Offset = int64(len(recs))
			recs = append(recs, r)
		}
	}
	files := map[string]func() ([]byte, *segment.Header){
		"plain.avro": func() ([]byte, *segment.Header) {
			return write(t, identity(), 0, 3, "", segment.First(), []record.Record{rec(0), rec(1), rec(2)})
		},
		"empty.avro": func() ([]byte, *segment.Header) { return write(t, identity(), 0, 1000, "", segment.First(), nil) },
		"full.avro":  func() ([]byte, *segment.Header) { return fullSegment(t, segment.CodecNull) },
		"blocks.avro": func() ([]byte, *segment.Header) {
			recs := benchRecords(600)
			return write(t, identity(), 0, 600, segment.CodecZstd, segment.First(), recs)
		},
	}
	for _, codec := range codecNames {
		files["shapes-"+codec+".avro"] = func() ([]byte, *segment.Header) {
			return write(t, id, 0, int64(len(recs)), codec, segment.First(), recs)
		}
	}
	return files
}

// goldenWrong are the negative ones, made from plain.avro, with what the error says.
func goldenWrong(plain []byte) map[string]struct {
	data []byte
	want string
} {
	flipped := bytes.Clone(plain)
	flipped[len(flipped)-40] ^= 0x10
	header := bytes.Clone(plain)
	header[bytes.Index(header, []byte("read_committed"))] ^= 1
	return map[string]struct {
		data []byte
		want string
	}{
		"truncated.avro":        {plain[:len(plain)-20], "truncated"},
		"truncated-header.avro": {plain[:500], "truncated"},
		"flipped.avro":          {flipped, "block"},
		"flipped-header.avro":   {header, "checksum"},
		"trailing.avro":         {append(bytes.Clone(plain), 0), "block"},
		"newer.avro":            {bytes.Replace(plain, []byte("tapedeck.format\x021"), []byte("tapedeck.format\x022"), 1), "written by a newer version; upgrade"},
		"other-writer.avro":     {[]byte("Obj\x01\x04\x16avro.schema\x10\"string\"\x14avro.codec\x08null\x000123456789abcdef"), "another writer"},
	}
}

func TestGolden(t *testing.T) {
	segments := goldenSegments(t)
	if *update {
		if err := os.MkdirAll(goldenDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, f := range segments {
			data, h := f()
			_, recs := mustReadAll(t, data)
			text, err := json.MarshalIndent(golden{h, recs}, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			save(t, name, data)
			save(t, name+".json", append(text, '\n'))
		}
		for name, c := range goldenWrong(load(t, "plain.avro")) {
			save(t, name, c.data)
		}
	}
	for name, f := range segments {
		t.Run(name, func(t *testing.T) {
			data := load(t, name)
			var want golden
			if err := json.Unmarshal(load(t, name+".json"), &want); err != nil {
				t.Fatal(err)
			}
			h, recs := mustReadAll(t, data)
			if d := cmp.Diff(want.Header, h); d != "" {
				t.Errorf("header (-want +got):\n%s", d)
			}
			wantRecords(t, recs, want.Records)
			// Snappy's encoder is written in assembly for some processors, with other, equally right results.
			if again, _ := f(); !bytes.Equal(again, data) && (h.Codec != segment.CodecSnappy || runtime.GOARCH == "amd64") {
				t.Errorf("this build writes %d other bytes for the same records than the file's %d: see the comment at the flag", len(again), len(data))
			}
		})
	}
	for name, c := range goldenWrong(load(t, "plain.avro")) {
		t.Run(name, func(t *testing.T) {
			wantCorrupt(t, name, load(t, name), c.want)
			if newer := name == "newer.avro"; newer {
				if _, err := segment.NewReader(name, load(t, name)); !errors.Is(err, segment.ErrNewerVersion) {
					t.Error(err)
				}
			}
		})
	}
	// No file is left over, so that none is forgotten by this test.
	files, err := filepath.Glob(goldenDir + "/*.avro")
	if err != nil || len(files) != len(segments)+len(goldenWrong(load(t, "plain.avro"))) {
		t.Errorf("%d golden files, %v", len(files), err)
	}
}

func load(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func save(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(goldenDir, name), b, 0o644); err != nil {
		t.Fatal(err)
	}
}
