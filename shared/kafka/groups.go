package kafka

import (
	"context"
	"errors"

	"slices"
)

// Groups lists the consumer groups of the cluster, also those without members, ascending. Part of an answer (a broker that does not answer) is
// an error: a group that is missing from it must not look deleted.
func (a *Admin) Groups(ctx context.Context) ([]string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	res, err := a.a.ListConsumerGroups(ctx)
	if err == nil && len(res.Errors) > 0 {
		err = errors.Join(res.Errors...)
	}
	if err != nil {
		return nil, wrap(err, "list consumer groups")
	}
	names := make([]string, 0, len(res.Valid))
	for _, g := range res.Valid {
		names = append(names, g.GroupID)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
