package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/store"
)

// A snapshot is what something was at a time, whole: <folder><2^63−1−ms>+<ms>.json.gz, both numbers of 20 digits. The first makes the newest one at or
// before a time the first of a listing.

const maxSnapshotBytes = 1 << 30 // uncompressed

func formatSnapshotName(folder string, ms int64) string {
	return fmt.Sprintf("%s%020d+%020d.json.gz", folder, math.MaxInt64-ms, ms)
}

// parseSnapshotName is the reverse of formatSnapshotName.
func parseSnapshotName(folder, key string) (ms int64, err error) {
	_, number, _ := strings.Cut(strings.TrimSuffix(key, ".json.gz"), "+")
	ms, err = strconv.ParseInt(number, 10, 64)
	if err != nil || ms < 0 || formatSnapshotName(folder, ms) != key {
		return 0, fmt.Errorf("%w: %s is not the name of a snapshot in %s", ErrForeign, key, folder)
	}
	return ms, nil
}

// keepSnapshot writes v as the snapshot of a time in ms: one create.
func (a *Archive) keepSnapshot(ctx context.Context, folder string, ms int64, v any) error {
	if ms < 0 {
		return fmt.Errorf("time %d is before 1970", ms)
	}
	data, err := json.Marshal(v) // keys of a map in ascending order
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed) // without a name or time: nothing but the snapshot decides its bytes
	_, err = z.Write(data)
	if err = errors.Join(err, z.Close()); err != nil {
		return err
	}
	key := formatSnapshotName(folder, ms)
	if err := a.st.Create(ctx, key, packed.Bytes()); err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	return nil
}

// snapshot reads the newest snapshot at or before the time until, in ms, into v, and holds what it says of itself (says: format and time in ms) against its
// name and the newest format known: one LIST of one key and one GET. Errors: store.ErrNotFound, ErrForeign, the store's.
func (a *Archive) snapshot(ctx context.Context, folder string, until int64, v any, says func() (format int, ms int64), newest int) error {
	if until < 0 {
		return store.ErrNotFound
	}
	objs, _, err := a.st.List(ctx, folder, fmt.Sprintf("%s%020d", folder, math.MaxInt64-until), 1)
	if err != nil {
		return err
	}
	if len(objs) == 0 {
		return store.ErrNotFound
	}
	key := objs[0].Key
	ms, err := parseSnapshotName(folder, key)
	if err != nil {
		return err
	}
	data, err := a.st.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	err = unpack(data, v)
	if err == nil {
		switch format, at := says(); {
		case format > newest:
			err = fmt.Errorf("format %d, this program knows %d: use a newer version", format, newest)
		case format < 1:
			err = errors.New("not a snapshot")
		case at != ms:
			err = fmt.Errorf("it is of the time %d", at)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrForeign, key, err)
	}
	return nil
}

func unpack(data []byte, v any) error {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxSnapshotBytes+1))
	if err != nil {
		return err
	}
	if len(plain) > maxSnapshotBytes {
		return fmt.Errorf("more than %d bytes", maxSnapshotBytes)
	}
	return json.Unmarshal(plain, v)
}
