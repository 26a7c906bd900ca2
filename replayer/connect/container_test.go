package connect

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/connect/connecttest"
)

// all reads a container to its end.
func all(data []byte) (rows []any, err error) {
	c, err := openContainer("o", data)
	if err != nil {
		return nil, err
	}
	for {
		_, v, err := c.next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		rows = append(rows, v)
	}
}

const smallSchema = `{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"t","type":"string"}]}`

func small(t testing.TB, codec string) []byte {
	var data []any
	for i := range 5 {
		data = append(data, map[string]any{"id": int64(i), "t": "row " + string(rune('0'+i))})
	}
	return connecttest.Container(t, smallSchema, codec, data)
}

func TestCodecs(t *testing.T) {
	samples := map[string][]byte{}
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		samples[codec] = small(t, codec)
	}
	var err error
	if samples["bzip2"], err = os.ReadFile("testdata/bzip2.avro"); err != nil { // of the same rows; there is no encoder here
		t.Fatal(err)
	}
	for codec, data := range samples {
		rows, err := all(data)
		if err != nil || len(rows) != 5 {
			t.Fatalf("%s: %d rows, %v", codec, len(rows), err)
		}
		for i, r := range rows {
			if m := r.(map[string]any); m["id"] != int64(i) || m["t"] != "row "+string(rune('0'+i)) {
				t.Errorf("%s: row %d is %v", codec, i, m)
			}
		}
		c, err := openContainer("o", data)
		if err != nil || c.codec != codec {
			t.Fatalf("%s: %v", codec, err)
		}
		if n, err := c.count(); err != nil || n != 5 {
			t.Errorf("%s: counted %d, %v", codec, n, err)
		}
	}
	bad := []byte(strings.Replace(string(samples["deflate"]), "deflate", "deflatx", 1))
	if _, err := openContainer("o", bad); err == nil || !strings.Contains(err.Error(), `"deflatx"`) {
		t.Errorf("unknown codec: %v", err)
	}
}

// Wherever an object is cut, or a byte of it is another, reading ends with an error that names it, or with rows: never with a panic, and a cut never goes
// unnoticed but between two blocks, which is why the number of records is planned and compared.
func TestDamage(t *testing.T) {
	data := small(t, "snappy")
	whole, err := openContainer("o", data)
	if err != nil {
		t.Fatal(err)
	}
	between := map[int]bool{len(data) - len(whole.rest): true} // ends of the header and of blocks
	for {
		if _, _, err := whole.nextBlock(); err != nil {
			break
		}
		between[len(data)-len(whole.rest)] = true
	}
	for n := range data {
		_, err := all(data[:n])
		var d *DamagedError
		if between[n] == (err != nil) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
		if err != nil && (!errors.As(err, &d) || d.Object != "o" || d.At > n) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	if len(between) != 3 {
		t.Errorf("%d blocks", len(between)-1)
	}
	unnoticed := 0
	for i := range data {
		flipped := append([]byte{}, data...)
		flipped[i] ^= 0x10
		if _, err := all(flipped); err == nil {
			unnoticed++
		}
	}
	// Avro has a checksum for what snappy packed, and none for the header: a name in the schema can be another one.
	if unnoticed > len(smallSchema)+16 {
		t.Errorf("%d of %d flipped bytes were not noticed", unnoticed, len(data))
	}
}

func TestNotAContainer(t *testing.T) {
	for _, data := range []string{"", "{}", "PAR1", "Obj", "Obj\x01", "Obj\x01\x00", "Obj\x01\x02", "Obj\x02\x00"} {
		if _, err := openContainer("topics/x", []byte(data)); err == nil || !strings.Contains(err.Error(), "object topics/x: at byte") {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func FuzzContainer(f *testing.F) {
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		f.Add(small(f, codec))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := all(data)
		c, openErr := openContainer("o", data)
		if openErr != nil {
			return
		}
		n, countErr := c.count()
		if err == nil && (countErr != nil || n != int64(len(rows))) {
			t.Fatalf("%d rows were read and %d counted, %v", len(rows), n, countErr)
		}
	})
}
