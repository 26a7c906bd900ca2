package archive

import (
	"context"
	"fmt"

	"tapedeck.dev/tapedeck/shared/segment"
)

// Unknown is the class of offsets that no object of a foreign archive holds, and of which nothing says why. Our segments never hold it.
const Unknown segment.Class = "unknown"

// Where names the place, for messages.
func (a *Archive) Where() string { return fmt.Sprintf("%s (topics.dir %s)", a.st, a.topicsDir) }

// Segment returns the bytes of a planned segment. Errors: those of the store.
func (a *Archive) Segment(ctx context.Context, p PlannedSegment) ([]byte, error) {
	return a.st.Get(ctx, p.Key)
}
