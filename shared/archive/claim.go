package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tapedeck.dev/tapedeck/shared/store"
)

// ErrOtherDir: the prefix holds the archive of another topics.dir, or one of a newer format.
var ErrOtherDir = errors.New("the prefix holds another archive")

// claimKey is the object that says which topics.dir a prefix holds.
const claimKey = dir + "archive"

const claimFormat = 1

// claimed is its content.
type claimed struct {
	Format    int    `json:"format"`
	TopicsDir string `json:"topicsDir"`
}

// Claim is the start-up check of a writer: the first one writes which topics.dir the prefix holds, every later one compares. One prefix
// holds one topics.dir, because the names of index objects have no place for a second. Errors: ErrOtherDir, and the store's.
func (a *Archive) Claim(ctx context.Context) error {
	found, err := a.checkClaim(ctx)
	if err == nil && !found {
		data, merr := json.Marshal(claimed{claimFormat, a.topicsDir})
		if merr != nil {
			return fmt.Errorf("claim the prefix: %w", merr)
		}
		if err = a.st.Create(ctx, claimKey, data); errors.Is(err, store.ErrExists) { // another writer started at the same time
			if found, err = a.checkClaim(ctx); err == nil && !found {
				err = fmt.Errorf("%s exists by the answer to a create, and cannot be read", claimKey)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("claim the prefix: %w", err)
	}
	return nil
}

// CheckDir compares the topics.dir of a reader with the one that the prefix holds. A prefix that does not say is taken for any. Errors:
// ErrOtherDir, and the store's.
func (a *Archive) CheckDir(ctx context.Context) error {
	if _, err := a.checkClaim(ctx); err != nil {
		return fmt.Errorf("check topics.dir: %w", err)
	}
	return nil
}

func (a *Archive) checkClaim(ctx context.Context) (found bool, err error) {
	data, err := a.st.Get(ctx, claimKey)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	var c claimed
	switch err := json.NewDecoder(bytes.NewReader(data)).Decode(&c); {
	case err != nil || c.Format < 1:
		return true, fmt.Errorf("%w: %s is not readable: %.100q", ErrOtherDir, claimKey, data)
	case c.Format > claimFormat:
		return true, fmt.Errorf("%w: %s has format %d, this program knows %d: use a newer version", ErrOtherDir, claimKey, c.Format, claimFormat)
	case c.TopicsDir != a.topicsDir:
		return true, fmt.Errorf("%w: it is the archive of topics.dir %q, not %q; one prefix holds one topics.dir: set topics.dir to %q, or use another prefix in the store address",
			ErrOtherDir, c.TopicsDir, a.topicsDir, c.TopicsDir)
	}
	return true, nil
}
