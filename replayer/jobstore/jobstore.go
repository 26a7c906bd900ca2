// Package jobstore keeps jobs in the archive's store: each job is a create-only sequence of entries, _tapedeck/jobs/<name>/<n>, and the
// entry with the highest n holds. docs/replayer.md describes the sequence and its races.
package jobstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/store"
)

// Dir is where jobs are.
const Dir = "_tapedeck/jobs/"

// Format is the version of the entries. An entry of a higher one is refused, so that an old replayer leaves the jobs of newer ones alone.
const Format = 1

var (
	// ErrNotFound: there is no job of this name.
	ErrNotFound = errors.New("no such job")
	// ErrMoved: somebody else appended first; load and decide again.
	ErrMoved = errors.New("the job has moved on")

	// errUnreadable: an entry is there, and it is not one that this version wrote.
	errUnreadable = errors.New("not a readable entry")
)

// Entry is one object of a job's sequence.
type Entry struct {
	Format int       `json:"format"`
	N      int64     `json:"n"`
	Writer string    `json:"writer"` // random; tells our own try from another's
	Event  job.Event `json:"event"`  // what made this entry
	At     time.Time `json:"at"`     // for people
	Job    job.Job   `json:"job"`
}

// Created is the event of the first entry.
const Created job.Event = "created"

// Store reads and extends the sequences. Safe for concurrent use.
type Store struct {
	st      store.Store
	backoff time.Duration // first wait between tries of a create without answer
}

// New keeps jobs in st.
func New(st store.Store) *Store { return &Store{st: st, backoff: 100 * time.Millisecond} }

// Key is the name of an entry; ParseKey is its inverse.
func Key(name string, n int64) string { return fmt.Sprintf("%s%s/%020d", Dir, name, n) }

// ParseKey is the inverse of Key; any other key is an error.
func ParseKey(key string) (name string, n int64, err error) {
	rest, ok := strings.CutPrefix(key, Dir)
	name, digits, ok2 := strings.Cut(rest, "/")
	if ok && ok2 && len(digits) == 20 && job.ValidName(name) {
		if n, err = strconv.ParseInt(digits, 10, 64); err == nil && n >= 0 && Key(name, n) == key {
			return name, n, nil
		}
	}
	return "", 0, fmt.Errorf("%q is not the name of a job's entry", key)
}

// Names lists the jobs, sorted. Names that cannot be jobs are left out.
func (s *Store) Names(ctx context.Context) ([]string, error) {
	dirs, err := s.st.ListDirs(ctx, Dir)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	names := dirs[:0]
	for _, d := range dirs {
		if job.ValidName(d) {
			names = append(names, d)
		}
	}
	return names, nil
}

// Newest returns the number of the newest entry. known is one that is known to exist, −1 for none; where nothing has been added since, it
// is returned at the cost of one short listing.
func (s *Store) Newest(ctx context.Context, name string, known int64) (int64, error) {
	prefix, after := Dir+name+"/", ""
	if known >= 0 {
		after = Key(name, known)
	}
	newest := known
	for {
		objs, more, err := s.st.List(ctx, prefix, after, 1000)
		if err != nil {
			return 0, fmt.Errorf("list entries of job %s: %w", name, err)
		}
		for _, o := range objs {
			_, n, err := ParseKey(o.Key)
			if err != nil {
				return 0, fmt.Errorf("job %s: %w: a foreign object", name, err)
			}
			newest, after = n, o.Key
		}
		if !more || len(objs) == 0 {
			break
		}
	}
	if newest < 0 {
		return 0, fmt.Errorf("job %s: %w", name, ErrNotFound)
	}
	return newest, nil
}

// Load returns the newest entry. known is an entry seen before, nil for none; it is returned itself where nothing has been added since.
func (s *Store) Load(ctx context.Context, name string, known *Entry) (*Entry, error) {
	from := int64(-1)
	if known != nil {
		from = known.N
	}
	n, err := s.Newest(ctx, name, from)
	if err != nil {
		return nil, err
	}
	if known != nil && known.N == n {
		return known, nil
	}
	return s.get(ctx, name, n)
}

// At returns entry n of a job: its history, one by one.
func (s *Store) At(ctx context.Context, name string, n int64) (*Entry, error) {
	return s.get(ctx, name, n)
}

func (s *Store) get(ctx context.Context, name string, n int64) (*Entry, error) {
	key := Key(name, n)
	data, err := s.st.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("load entry %d of job %s: %w", n, name, err)
	}
	var e Entry
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("load %s: %w: %w", key, errUnreadable, err)
	}
	if e.Format > Format {
		return nil, fmt.Errorf("load %s: %w: format %d is newer than this replayer's (%d): upgrade it", key, errUnreadable, e.Format, Format)
	}
	if e.N != n || e.Job.Request.Name != name {
		return nil, fmt.Errorf("load %s: %w: it says that it is entry %d of job %q", key, errUnreadable, e.N, e.Job.Request.Name)
	}
	return &e, nil
}

// Create makes the first entry. ErrMoved: a job of this name exists.
func (s *Store) Create(ctx context.Context, j job.Job) (*Entry, error) {
	return s.put(ctx, Entry{Format: Format, N: 0, Event: Created, At: j.CreatedAt, Job: j})
}

// Append makes the entry that follows prev. ErrMoved: somebody else did.
func (s *Store) Append(ctx context.Context, prev *Entry, event job.Event, at time.Time, j job.Job) (*Entry, error) {
	return s.put(ctx, Entry{Format: Format, N: prev.N + 1, Event: event, At: at, Job: j})
}

// put creates an entry and finds out what an answer without meaning meant. The same bytes are sent at each try, so it does not matter
// which of the tries arrives.
func (s *Store) put(ctx context.Context, e Entry) (*Entry, error) {
	e.Writer = token()
	name := e.Job.Request.Name
	data, err := json.MarshalIndent(e, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode entry %d of job %s: %w", e.N, name, err)
	}
	wait := s.backoff
	for {
		err := s.st.Create(ctx, Key(name, e.N), data)
		switch {
		case err == nil:
			return &e, nil
		case errors.Is(err, store.ErrExists), errors.Is(err, store.ErrUnknown):
			// "Exists" may be an earlier try of this very call that arrived late; the token tells.
			there, getErr := s.get(ctx, name, e.N)
			switch {
			case getErr == nil && there.Writer == e.Writer:
				return &e, nil
			case getErr == nil, errors.Is(getErr, errUnreadable):
				return nil, fmt.Errorf("append entry %d to job %s: %w", e.N, name, ErrMoved)
			case errors.Is(getErr, store.ErrNotFound) && errors.Is(err, store.ErrExists), errors.Is(getErr, store.ErrNotAllowed):
				return nil, fmt.Errorf("append entry %d to job %s: look at what is there: %w", e.N, name, getErr)
			}
			// Absent so far, or not to be seen now: the same bytes again.
		default:
			return nil, fmt.Errorf("append entry %d to job %s: %w", e.N, name, err)
		}
		if waitErr := pause(ctx, wait); waitErr != nil {
			return nil, fmt.Errorf("append entry %d to job %s: %w, and the answer so far is: %w", e.N, name, waitErr, err)
		}
		wait = min(2*wait, 50*s.backoff)
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func token() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// Apply decides what ask does to a job, appends, and decides again for as long as others are faster. known is an entry seen before,
// nil for none. It returns the entry that holds then, and the action that was taken last: Append has been done.
func (s *Store) Apply(ctx context.Context, name string, known *Entry, ask job.Ask) (*Entry, job.Action, error) {
	cur, err := s.Load(ctx, name, known)
	if err != nil {
		return nil, job.Action{}, err
	}
	if cur != known {
		ask.Elapsed = 0 // the time waited counted for another entry
	}
	for {
		act := job.Next(cur.Job, ask)
		if act.Kind != job.Append {
			return cur, act, nil
		}
		next, err := s.Append(ctx, cur, ask.Event, ask.At, act.Job)
		if err == nil {
			return next, act, nil
		}
		if !errors.Is(err, ErrMoved) {
			return cur, act, err
		}
		if cur, err = s.Load(ctx, name, cur); err != nil {
			return nil, job.Action{}, err
		}
		// Somebody has moved the job, so its lease begins anew.
		ask.Elapsed, ask.Restarted = 0, false
	}
}
