package archiver

import (
	"context"

	"go.uber.org/zap"
)

// sweep removes what creates that were cut off long ago have left in the store. It costs money at most, so nothing waits for it to
// succeed: the right to list uploads may be missing, and lifecycle rules do the same.
func (a *Archiver) sweep(ctx context.Context) {
	n, err := a.arc.Sweep(ctx)
	if err != nil && ctx.Err() == nil {
		a.parts.Log.Warn("unfinished uploads were not removed; a lifecycle rule (AbortIncompleteMultipartUpload) can do it in our place", zap.Error(err))
	}
	if n > 0 {
		a.parts.Log.Info("removed what creates that were cut off have left", zap.Int("count", n))
	}
}
