package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"tapedeck.dev/tapedeck/shared/e2e/proof"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// TestReadBack reads the archive with readers that know nothing of Tapedeck, and compares every record with what a plain
// consumer saw: each (partition, offset) once, with key, value, headers and timestamp.
func TestReadBack(t *testing.T) {
	python := os.Getenv("TAPEDECK_TEST_PYTHON")
	if python == "" {
		t.Skip("TAPEDECK_TEST_PYTHON names no Python with fastavro and duckdb: scripts/real/run.sh makes one")
	}
	fastavro := func(dir string) []string {
		return []string{filepath.Join("..", "segment", "testdata", "readback.py"), dir}
	}
	duckdb := func(dir string) []string {
		return []string{filepath.Join("testdata", "duckdb_readback.py"), filepath.Join(dir, "topics", "*", "*", "*.avro")}
	}
	for _, c := range []struct {
		codec   string
		readers map[string]func(dir string) []string
	}{
		{"zstandard", map[string]func(string) []string{"fastavro": fastavro}},
		{"deflate", map[string]func(string) []string{"fastavro": fastavro, "duckdb": duckdb}},
	} {
		t.Run(c.codec, func(t *testing.T) {
			o := options(t, 6000, 0)
			o.Codec = c.codec
			o.BeforeDelete = func(ctx context.Context, p *proof.Proof) error {
				input, err := proof.ReadTopic(ctx, p.Bootstrap, p.Topic)
				if err != nil {
					return err
				}
				dir := t.TempDir()
				if err := download(ctx, p.StoreURL, "topics/"+p.Topic+"/", dir); err != nil {
					return err
				}
				for name, args := range c.readers {
					cmd := exec.CommandContext(ctx, python, args(dir)...)
					cmd.Stderr = os.Stderr
					out, err := cmd.Output()
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					compareReadBack(t, name, input, out)
				}
				return nil
			}
			prove(t, o)
		})
	}
}

// download copies the objects below prefix of a store into a folder.
func download(ctx context.Context, storeURL, prefix, dir string) error {
	st, err := storeurl.Open(ctx, storeURL)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	for after, more := "", true; more; {
		objs, m, err := st.List(ctx, prefix, after, 0)
		if err != nil {
			return err
		}
		for _, o := range objs {
			data, err := st.Get(ctx, o.Key)
			if err != nil {
				return err
			}
			path := filepath.Join(dir, filepath.FromSlash(o.Key))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return err
			}
			after = o.Key
		}
		more = m
	}
	return nil
}

func compareReadBack(t *testing.T, reader string, input map[int32]proof.Sequence, out []byte) {
	t.Helper()
	seen := make(map[int32]int)
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var row struct {
			Partition     int32
			Offset        int64
			Timestamp     int64
			TimestampType record.TimestampType
			Key, Value    *string
			Headers       [][2]*string
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s: %q: %v", reader, lines.Bytes(), err)
		}
		i := seen[row.Partition]
		if i >= len(input[row.Partition]) {
			t.Fatalf("%s: partition %d holds more records than the %d that a consumer saw", reader, row.Partition, i)
		}
		want := input[row.Partition][i]
		got := record.Record{Topic: want.Topic, Partition: row.Partition, Offset: row.Offset, Timestamp: row.Timestamp,
			TimestampType: row.TimestampType, Key: decode64(t, row.Key), Value: decode64(t, row.Value)}
		for _, h := range row.Headers {
			got.Headers = append(got.Headers, record.Header{Key: *h[0], Value: decode64(t, h[1])})
		}
		if !record.Equal(&got, &want) {
			t.Fatalf("%s: record %d of partition %d is %+v, a consumer saw %+v", reader, i, row.Partition, got, want)
		}
		seen[row.Partition]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for p, s := range input {
		if seen[p] != len(s) {
			t.Errorf("%s: partition %d: %d records of %d", reader, p, seen[p], len(s))
		}
		total += len(s)
	}
	t.Logf("%s read %d records, each as a plain consumer saw it", reader, total)
}

func decode64(t *testing.T, s *string) []byte {
	t.Helper()
	if s == nil {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(*s)
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		b = []byte{}
	}
	return b
}
