package archive

import (
	"context"
	"fmt"
	"strings"

	"tapedeck.dev/tapedeck/shared/segment"
)

// Sweep removes what creates of this archive that were cut off long ago have left in the store (store.Store.Sweep), and answers how
// much. It touches nothing whose name is not one that an archive here writes: below a prefix that others share their unfinished
// uploads are safe.
func (a *Archive) Sweep(ctx context.Context) (int, error) {
	n, err := a.st.Sweep(ctx, func(key string) bool {
		if strings.HasPrefix(key, dir) {
			return true
		}
		_, err := segment.ParseName(a.topicsDir, key)
		return err == nil
	})
	if err != nil {
		return n, fmt.Errorf("sweep unfinished creates: %w", err)
	}
	return n, nil
}
