package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/store"
)

// A subject takes ids while its own mode is IMPORT. Which mode it had before is written down before the first change, so that whoever goes on with the job,
// or cancels it, can put it back:
//
//	_tapedeck/registry-modes/<job's id>/<n>   {"format":1,"modes":{"trips-value":"","users-value":"READONLY"}}   "": none of its own
//
// Interleavings (A and B are replayers):
//
//  1. A dies after its object, before or after a change: B finds the object, does the rest, puts everything in it back.
//  2. A dies before its object: nothing was changed.
//  3. A sleeps with subjects in IMPORT, B finishes and puts them back, A wakes: what A still registers is what B has registered; A puts its modes back itself
//     when it ends. Where A dies just then, the end of the job, which looks at the modes once more, or a person puts them back.
//  4. B comes while A works, and finds a subject in IMPORT: the object says what it was; the first object that names a subject counts.

const modesDir = "_tapedeck/registry-modes/"

const putBackBound = 30 * time.Second

// Modes keeps the modes that a job found.
type Modes struct {
	Store store.Store
	JobID string
}

type modesObject struct {
	Format int               `json:"format"`
	Modes  map[string]string `json:"modes"`
}

func (m Modes) dir() string { return modesDir + m.JobID + "/" }

// load returns what the job's objects say; next is the number of the next one.
func (m Modes) load(ctx context.Context) (modes map[string]string, next int, err error) {
	modes = map[string]string{}
	for ; ; next++ {
		key := fmt.Sprintf("%s%020d", m.dir(), next)
		data, err := m.Store.Get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return modes, next, nil
		case err != nil:
			return nil, 0, fmt.Errorf("read %s: %w", key, err)
		}
		var o modesObject
		if err := json.Unmarshal(data, &o); err != nil || o.Format != 1 {
			return nil, 0, fmt.Errorf("%s cannot be read (format %d): %w", key, o.Format, errors.Join(err, ErrRefused))
		}
		for subject, mode := range o.Modes {
			if _, ok := modes[subject]; !ok {
				modes[subject] = mode
			}
		}
	}
}

// keep adds modes to what is kept. Another replayer may do so at the same time: then what it wrote counts.
func (m Modes) keep(ctx context.Context, modes map[string]string) error {
	data, err := json.Marshal(modesObject{Format: 1, Modes: modes})
	if err != nil {
		return err
	}
	for {
		_, next, err := m.load(ctx)
		if err != nil {
			return err
		}
		key := fmt.Sprintf("%s%020d", m.dir(), next)
		err = m.Store.Create(ctx, key, data)
		if err == nil {
			return nil
		}
		if !errors.Is(err, store.ErrExists) {
			return fmt.Errorf("create %s: %w", key, err)
		}
	}
}

// keepModes writes down the modes of subjects that are to take ids, and returns what makes one of them do so.
func (r *Restorer) keepModes(ctx context.Context, subjects []string) (func(context.Context, string) error, error) {
	kept, _, err := r.Modes.load(ctx)
	if err != nil {
		return nil, err
	}
	change := map[string]bool{}
	more := map[string]string{}
	for _, s := range subjects {
		all, own, err := r.Registry.Modes(ctx, s)
		if err != nil {
			return nil, err
		}
		if own == schema.ModeImport || own == "" && all == schema.ModeImport {
			continue
		}
		change[s] = true
		if _, ok := kept[s]; !ok {
			more[s] = own
		}
	}
	if len(more) > 0 {
		if err := r.Modes.keep(ctx, more); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, subject string) error {
		if !change[subject] {
			return nil
		}
		delete(change, subject)
		return r.Registry.SetMode(ctx, subject, schema.ModeImport)
	}, nil
}

// PutBack gives each subject that the job has put into IMPORT the mode that it had before. A mode that somebody else has set meanwhile stays. It may be
// repeated, and works on when ctx has ended.
func (r *Restorer) PutBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), putBackBound)
	defer cancel()
	kept, _, err := r.Modes.load(ctx)
	if err != nil {
		return fmt.Errorf("put modes of the schema registry back: %w", err)
	}
	var errs []error
	for _, s := range slices.Sorted(maps.Keys(kept)) {
		_, own, err := r.Registry.Modes(ctx, s)
		if errors.Is(err, schema.ErrNoImport) {
			return nil // another registry than at first, or none of its kind
		}
		if err == nil && own == schema.ModeImport {
			err = r.Registry.SetMode(ctx, s, kept[s])
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("put the mode of subject %s back to %q (by hand: PUT or DELETE /mode/%s): %w", s, kept[s], s, err))
		}
	}
	return errors.Join(errs...)
}
