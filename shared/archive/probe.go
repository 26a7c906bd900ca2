package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/shared/store"
)

// Probe is the start-up check of a store: on fixed keys under _tapedeck/probe/ a conditional create, twice where the first one succeeds
// (then it must be refused), GET and compare, LIST order. The error names the setting to change.
//
// It leaves at most a dozen small objects, and the same ones at every start. Many services may probe at once. An answer
// that settles nothing (a 409 between two of them, a 503) is retried a few times; beyond that the caller's context bounds it.
func Probe(ctx context.Context, st store.Store) error {
	return probe{st, realWaiter()}.run(ctx)
}

type probe struct {
	st   store.Store
	wait waiter
}

const (
	probeTries = 6
	// probeSlots bounds how many objects with wrong bytes, left by runs with a wrong setting, a store may hold before
	// somebody must remove them: nothing is ever overwritten, so a later run goes on to the next slot.
	probeSlots = 16
)

func (p probe) run(ctx context.Context) error {
	key, fresh, err := p.bytes(ctx)
	if err == nil && fresh { // else the create in bytes was refused
		err = p.refusal(ctx, key)
	}
	if err == nil {
		err = p.listing(ctx)
	}
	if err != nil {
		return fmt.Errorf("probe store %s: %w", p.st, err)
	}
	return nil
}

// probeBody is what the probe writes: every byte value, and long enough for a range in its middle.
func probeBody() []byte {
	b := []byte("tapedeck probe\n")
	for i := range 1024 {
		b = append(b, byte(i), byte(i>>8))
	}
	return b
}

const (
	checksumAdvice = "set checksum=when-required or checksum=none in the store address (now: auto, or what the address says)"
	conditionWhy   = "it cannot keep each offset exactly once (two archivers would overwrite each other): use a store that honours If-None-Match: * on PUT"
)

// bytes creates an object (fresh), or is refused over that of an earlier run, and compares what comes back.
func (p probe) bytes(ctx context.Context) (key string, fresh bool, err error) {
	body := probeBody()
	var mangled string
	for slot := range probeSlots {
		key := fmt.Sprintf("%sbytes-%02d", probeDir, slot)
		err := p.create(ctx, key, body)
		fresh := err == nil
		switch {
		case fresh || errors.Is(err, store.ErrExists):
		case errors.Is(err, store.ErrNoBucket):
			return "", false, fmt.Errorf("the bucket in the store address is wrong, or must be created first: %w", err)
		case errors.Is(err, store.ErrInvalid):
			return "", false, fmt.Errorf("the store refuses a plain conditional create: %s; if it says that conditions are not implemented: %s: %w", checksumAdvice, conditionWhy, err)
		case errors.Is(err, store.ErrNotAllowed):
			return "", false, fmt.Errorf("the store does not let us write (credentials, role or bucket policy; s3:PutObject, s3:GetObject and s3:ListBucket are needed): %w", err)
		default:
			return "", false, err
		}
		got, err := p.st.Get(ctx, key)
		if err != nil {
			return "", false, fmt.Errorf("read back %s: %w", key, err)
		}
		if !bytes.Equal(got, body) {
			mangled = describeMangled(key, got, body)
			if fresh {
				return "", false, errors.New(mangled)
			}
			continue // it may be what an earlier run with another setting left; this setting is tried on the next slot
		}
		part, size, err := p.st.GetRange(ctx, key, 100, 64)
		if err != nil {
			return "", false, fmt.Errorf("read a range of %s: %w", key, err)
		}
		if !bytes.Equal(part, body[100:164]) || size != int64(len(body)) {
			return "", false, fmt.Errorf("the store answers a ranged GET of %s with other bytes than the object's (or another size: %d, not %d): headers could not be read", key, size, len(body))
		}
		return key, fresh, nil
	}
	return "", false, fmt.Errorf("%s; so do all %d probe objects: when the setting is right, remove %s by hand", mangled, probeSlots, probeDir)
}

// describeMangled says what a store made of the bytes that it was given.
func describeMangled(key string, got, want []byte) string {
	why := fmt.Sprintf("GET of %s returns %d bytes that differ from the %d written", key, len(got), len(want))
	if bytes.Contains(got, []byte(";chunk-signature=")) || bytes.Contains(got, []byte("x-amz-checksum-")) ||
		bytes.Contains(got, []byte("x-amz-trailer")) || (len(got) > len(want) && bytes.Contains(got, want)) {
		why += ": the store keeps the chunk framing of the SDK's default checksum inside the object"
	}
	return why + "; " + checksumAdvice
}

// refusal creates over the object that is there, with its own bytes, so that a store that ignores the condition does no
// harm: the create must be refused.
func (p probe) refusal(ctx context.Context, key string) error {
	err := p.create(ctx, key, probeBody())
	switch {
	case errors.Is(err, store.ErrExists):
		return nil
	case err == nil:
		return fmt.Errorf("the store accepted a create of %s, which exists: %s", key, conditionWhy)
	default:
		return fmt.Errorf("create %s again: %w", key, err)
	}
}

// probeNames have the shape of segments' names, '=' and '+' included (a listing that decodes '+' as a space shows here). They are
// written in this order, which is not theirs.
func probeNames() []string {
	const prefix = probeDir + "list/partition=0/probe+0+"
	var names []string
	for _, start := range []int64{1000, 0, 20, 3, 900719925474099312, 100, 10, 99, 9, 2} {
		names = append(names, fmt.Sprintf("%s%020d.avro", prefix, start))
	}
	return names
}

// listing checks order, start-after, page size and folders.
func (p probe) listing(ctx context.Context) error {
	names := probeNames()
	sorted := slices.Sorted(slices.Values(names))
	const prefix = probeDir + "list/"
	list := func(startAfter string, max int) ([]string, bool, error) {
		objs, more, err := p.st.List(ctx, prefix, startAfter, max)
		if err != nil {
			return nil, false, fmt.Errorf("list %s: %w", prefix, err)
		}
		keys := make([]string, len(objs))
		for i, o := range objs {
			keys[i] = o.Key
		}
		return keys, more, nil
	}
	keys, _, err := list("", 0)
	if err != nil {
		return err
	}
	missing := false
	for _, name := range names {
		if slices.Contains(keys, name) {
			continue
		}
		missing = true
		if err := p.create(ctx, name, []byte("probe")); err != nil && !errors.Is(err, store.ErrExists) {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	if missing {
		if keys, _, err = list("", 0); err != nil {
			return err
		}
	}
	if !slices.Equal(keys, sorted) {
		if slices.Equal(slices.Sorted(slices.Values(keys)), sorted) {
			return errors.New("LIST answers out of byte order (a directory bucket, or a gateway over a file system?): the newest segment could not be found; use a general purpose bucket")
		}
		return fmt.Errorf("LIST does not show what was written: %s instead of %s", strings.Join(keys, " "), strings.Join(sorted, " "))
	}
	keys, more, err := list(sorted[3], 2)
	if err != nil {
		return err
	}
	if !slices.Equal(keys, sorted[4:6]) || !more {
		return fmt.Errorf("LIST does not honour start-after and max-keys: 2 names after %s are %s (more: %t)", sorted[3], strings.Join(keys, " "), more)
	}
	dirs, err := p.st.ListDirs(ctx, prefix)
	if err != nil {
		return fmt.Errorf("list folders of %s: %w", prefix, err)
	}
	if !slices.Equal(dirs, []string{"partition=0"}) {
		return fmt.Errorf("LIST with a delimiter shows the folders %q of %s, not partition=0", dirs, prefix)
	}
	return nil
}

// create retries an answer that settles nothing: the object is the same whoever writes it.
func (p probe) create(ctx context.Context, key string, data []byte) error {
	policy := RetryPolicy{Min: 50 * time.Millisecond, Max: time.Second}
	for attempt := 1; ; attempt++ {
		err := p.st.Create(ctx, key, data)
		if !errors.Is(err, store.ErrUnknown) || ctx.Err() != nil || attempt == probeTries {
			return err
		}
		if err := p.wait.backoff(ctx, policy, attempt, err); err != nil {
			return err
		}
	}
}
