package archive

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// The simulation: several writers of one partition over a store whose answers are lost, late or refused for no reason.
// Writers start at random moments, freeze in the middle of a create, wake as zombies, and crash; retention moves the log
// start; offsets hold no data; the topic is deleted and created again. Whatever happens, at the end the objects are one chain from 0
// that tiles and is of one log, and each offset is in it once, as that log's record or in a skipped range of its class.
//
// The writers run the real code: Tail, the segment writer, and creation.step, one store call at a time. A seed decides
// everything, so that a failure can be run again: go test -run TestSimulation -sim.seed=N

var (
	simTrials = flag.Int("sim.trials", 300, "number of seeds that TestSimulation tries")
	simSeed   = flag.Uint64("sim.seed", 0, "run TestSimulation with this seed only")
)

// Rules that a writer of the simulation can break.
const (
	ruleFromZero    = "every chain starts at offset 0"
	ruleOneInFlight = "one create in flight"
	ruleConflict    = "409 is unknown, not lost"
	ruleLook        = "look after no answer"
	ruleOneLog      = "a chain is of one log"
)

func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		if _, err := simulate(*simSeed, "", nil); err != nil {
			t.Fatalf("seed %d: %v", *simSeed, err)
		}
		return
	}
	if testing.Short() {
		*simTrials = min(*simTrials, 100)
	}
	met := map[rule]int{}
	for seed := uint64(1); seed <= uint64(*simTrials); seed++ {
		if broken, err := simulate(seed, "", met); broken != nil || err != nil {
			t.Fatalf("seed %d: %v", seed, cmp.Or(broken, err))
		}
	}
	// What the simulation never met it does not prove.
	for _, r := range table {
		switch {
		case r.then == stop: // no foreign objects and no bad requests here; create_test.go has them
		case r.answer == exists && r.seen == absent: // nothing is removed here
		case met[r] == 0:
			t.Errorf("no seed met answer %d with look %d", r.answer, r.seen)
		}
	}
	t.Logf("%d seeds: %v", *simTrials, met)
}

// The simulation must be able to fail: each rule, left out, breaks an archive within a few seeds. And verify must see what
// the simulation sees.
func TestSimulationFindsBrokenRules(t *testing.T) {
	for _, rule := range []string{ruleFromZero, ruleOneInFlight, ruleConflict, ruleLook, ruleOneLog} {
		t.Run(rule, func(t *testing.T) {
			const seeds = 200
			found, first := 0, error(nil)
			for seed := uint64(1); seed <= seeds; seed++ {
				broken, err := simulate(seed, rule, nil)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if broken != nil {
					found++
					first = cmp.Or(first, broken)
				}
			}
			t.Logf("%d of %d archives are broken; the first: %v", found, seeds, first)
			if found < seeds/20 {
				t.Fatalf("without the rule %q only %d of %d archives are broken", rule, found, seeds)
			}
		})
	}
}

// simLog is a log: a topic that is created again is another one under the same name.
type simLog struct {
	id     string
	start  int64 // moved by retention
	end    int64
	nodata map[int64]bool
}

func (l *simLog) identity() segment.LogIdentity {
	id := identity(trips)
	id.TopicID = l.id
	return id
}

func (l *simLog) record(offset int64) record.Record {
	r := at(trips, offset, offset)
	r.Value = append(slices.Clone(r.Value), l.id...)
	return r
}

// world is the logs, of which the last is there, and what happens to it.
type world struct {
	r     *rand.Rand
	logs  []*simLog
	store *simStore
	a     *Archive
}

func (w *world) log() *simLog { return w.logs[len(w.logs)-1] }

// create creates the topic, again where there was one.
func (w *world) create() {
	w.logs = append(w.logs, &simLog{id: fmt.Sprintf("%s-%d", identity(trips).TopicID, len(w.logs)), nodata: map[int64]bool{}})
}

func (w *world) grow() {
	l := w.log()
	for range 1 + w.r.IntN(8) {
		if w.r.Float64() < .15 {
			l.nodata[l.end] = true
		}
		l.end++
	}
}

func (w *world) retain() {
	l := w.log()
	l.start = min(l.end, l.start+w.r.Int64N(13))
}

// simStore is a store whose creates meet every answer of the table.
type simStore struct {
	r       *rand.Rand
	calm    bool // no faults: listings, and the reads of the final check
	objects map[string][]byte
	pending []pendingCreate
}

type pendingCreate struct {
	key  string
	data []byte
}

var errConflict = fmt.Errorf("409 conflict: %w", store.ErrUnknown)

func (s *simStore) Create(_ context.Context, key string, data []byte, _ ...store.Attributes) error {
	x := s.r.Float64()
	if s.calm {
		x = 1
	}
	switch {
	case x < .08:
		return errConflict // nothing written, nothing there
	case x < .16:
		s.pending = append(s.pending, pendingCreate{key, data})
		return fmt.Errorf("time-out: %w", store.ErrUnknown) // lands later, or never
	case x < .22:
		return fmt.Errorf("reset: %w", store.ErrUnknown) // never arrives
	case x < .25:
		return fmt.Errorf("403: %w", store.ErrNotAllowed)
	}
	if s.put(key, data) != nil {
		return store.ErrExists
	}
	if x < .35 {
		return fmt.Errorf("200 with an error body: %w", store.ErrUnknown) // applied, and not told
	}
	return nil
}

func (s *simStore) put(key string, data []byte) error {
	if _, ok := s.objects[key]; ok {
		return store.ErrExists
	}
	s.objects[key] = data
	return nil
}

// land applies one create long after its time-out.
func (s *simStore) land() {
	if len(s.pending) > 0 {
		i := s.r.IntN(len(s.pending))
		_ = s.put(s.pending[i].key, s.pending[i].data) // refused where the name is taken
		s.pending = slices.Delete(s.pending, i, i+1)
	}
}

func (s *simStore) Get(_ context.Context, key string) ([]byte, error) {
	data, ok := s.objects[key]
	if !ok {
		return nil, store.ErrNotFound
	}
	return data, nil
}

func (s *simStore) GetRange(ctx context.Context, key string, off, n int64) ([]byte, int64, error) {
	if !s.calm && s.r.Float64() < .05 {
		return nil, 0, errors.New("503")
	}
	data, err := s.Get(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	size := int64(len(data))
	return data[min(off, size):min(off+n, size)], size, nil
}

func (s *simStore) List(_ context.Context, prefix, startAfter string, max int) (objs []store.Object, more bool, err error) {
	for key, data := range s.objects {
		if strings.HasPrefix(key, prefix) && key > startAfter {
			objs = append(objs, store.Object{Key: key, Size: int64(len(data))})
		}
	}
	slices.SortFunc(objs, func(x, y store.Object) int { return strings.Compare(x.Key, y.Key) })
	if size := store.PageSize(max); len(objs) > size {
		return objs[:size], true, nil
	}
	return objs, false, nil
}

func (s *simStore) Sweep(context.Context, func(string) bool) (int, error) { return 0, nil }

func (s *simStore) ListDirs(_ context.Context, prefix string) ([]string, error) {
	var dirs []string
	for key := range s.objects {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			if d, _, ok := strings.Cut(rest, "/"); ok && !slices.Contains(dirs, d) {
				dirs = append(dirs, d)
			}
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

func (s *simStore) String() string { return "sim" }
func (s *simStore) Close() error   { return nil }

// simWriter is one archiver's view of the partition.
type simWriter struct {
	w      *world
	log    *simLog // whose id it read at its start
	broken string  // the rule that it does not keep
	tail   *Tail   // newest segment seen confirmed
	next   int64
	pos    int64 // of the consumer
	recs   []int64
	lost   []span
	sent   *creation
	queue  []*creation // one in flight broken: sent and not confirmed
	met    map[rule]int
}

// writer starts one. nil: it has stopped, because the chain is of another log.
func (w *world) writer(broken string) (*simWriter, error) {
	s := &simWriter{w: w, log: w.log(), broken: broken}
	w.store.calm = true
	tail, err := w.a.Tail(context.Background(), trips.Topic, trips.Partition, -1)
	w.store.calm = false
	if err != nil {
		return nil, err
	}
	switch {
	case tail != nil && tail.Header.TopicID != s.log.id && broken != ruleOneLog:
		return nil, nil
	case tail != nil:
		s.tail, s.next = tail, tail.Header.Next
	case broken == ruleFromZero:
		s.next = s.log.start
	}
	s.empty()
	return s, nil
}

// empty begins a buffer at the chain's next.
func (s *simWriter) empty() { s.pos, s.recs, s.lost, s.sent, s.queue = s.next, nil, nil, nil, nil }

func (s *simWriter) fetch() {
	if s.pos < s.log.start { // out of range: lost
		s.lost = append(s.lost, span{s.pos, s.log.start})
		s.pos = s.log.start
	}
	for range 1 + s.w.r.IntN(6) {
		if s.pos >= s.log.end {
			break
		}
		if !s.log.nodata[s.pos] {
			s.recs = append(s.recs, s.pos)
		}
		s.pos++
	}
}

// adopt goes on behind a segment that is in the store.
func (s *simWriter) adopt(t *Tail) {
	s.tail = t
	s.drop(t.Header.Next)
}

// drop drops from the buffer what lies below next; past the buffer the consumer seeks.
func (s *simWriter) drop(next int64) {
	s.next, s.sent = next, nil
	if next > s.pos {
		s.empty()
		return
	}
	s.recs = slices.DeleteFunc(s.recs, func(o int64) bool { return o < next })
	var lost []span
	for _, l := range s.lost {
		if l.To > next {
			lost = append(lost, span{max(l.From, next), l.To})
		}
	}
	s.lost = lost
}

// close makes a segment of the buffer.
func (s *simWriter) close() (*creation, error) {
	chain := segment.First()
	switch {
	case s.tail != nil:
		chain = segment.After(s.tail.Header, s.tail.Size)
	case s.next > 0: // only without the rule "from 0"; the format refuses ordinal 0 there, so a false one is claimed
		chain.Ordinal = segment.IndexEvery
	}
	w, err := segment.NewWriter(s.log.identity(), s.next, "null")
	if err != nil {
		return nil, err
	}
	for _, o := range s.recs {
		r := s.log.record(o)
		if _, err := w.Append(&r); err != nil {
			return nil, err
		}
	}
	for _, l := range s.lost {
		if err := w.Skip(l.From, l.To, segment.Lost); err != nil {
			return nil, err
		}
	}
	data, h, err := w.Close(s.pos, chain, nil)
	if err != nil {
		return nil, err
	}
	return &creation{a: s.w.a, key: s.w.a.key(trips, h.Start), h: h, data: data}, nil
}

// errStopped: the writer has seen that the archive, or the topic, is of another log than its own.
var errStopped = errors.New("another log")

// step makes one store call for the segment being sent.
func (s *simWriter) step() error {
	ctx := context.Background()
	if s.broken == ruleOneInFlight && len(s.queue) > 0 && s.w.r.Float64() < .6 {
		c := s.queue[0]
		s.queue = s.queue[1:]
		_ = s.w.store.Create(ctx, c.key, c.data)
		return nil
	}
	if s.sent == nil {
		if s.pos == s.next {
			return nil
		}
		// The id is read once more before a create, and not while it is repeated.
		if s.log != s.w.log() && s.broken != ruleOneLog {
			return errStopped
		}
		c, err := s.close()
		if err != nil {
			return fmt.Errorf("close a segment at %d: %w", s.next, err)
		}
		s.sent = c
	}
	c := s.sent
	put := !c.looking
	then, err := c.step(ctx)
	if s.met != nil {
		s.met[rule{c.answer, c.saw, then}]++
	}
	if put {
		behind := &Tail{Header: c.h, Size: int64(len(c.data))}
		switch {
		case s.broken == ruleConflict && errors.Is(c.answerr, errConflict):
			s.tail, s.next = behind, c.h.Next // "somebody was faster": go on behind it, without the records
			s.empty()
			return nil
		case s.broken == ruleLook && c.answer == unknown && !errors.Is(c.answerr, errConflict):
			s.adopt(behind) // "it will have arrived"
			return nil
		case s.broken == ruleOneInFlight && c.answer != exists:
			if c.answer != created {
				s.queue = append(s.queue, c)
			}
			s.adopt(behind)
			return nil
		}
	}
	switch then {
	case confirm, adopt:
		t := c.tail
		s.adopt(&t)
	case stop:
		if errors.Is(err, ErrOtherLog) && len(s.w.logs) > 1 {
			if s.broken != ruleOneLog {
				return errStopped
			}
			// "It exists, so it is archived": whose it is was not looked at.
			h, _, err := segment.ParseHeader(c.key, s.w.store.objects[c.key])
			if err != nil {
				return err
			}
			s.adopt(&Tail{Header: h, Size: int64(len(s.w.store.objects[c.key]))})
			return nil
		}
		return fmt.Errorf("a writer stopped at %s: %w", c.key, err)
	case look, putAgain, lookAgain:
		// keep what was sent
	}
	return nil
}

// simulate runs one seed. broken says what is wrong with the archive in the end; err, what went wrong otherwise. The rows of
// the table that were met are counted in met.
func simulate(seed uint64, rule string, met map[rule]int) (broken, err error) {
	r := rand.New(rand.NewPCG(seed, 1))
	st := &simStore{r: r, objects: map[string][]byte{}}
	w := &world{r: r, store: st, a: Open(st, "topics")}
	w.create()
	again := r.Float64() < .4 // of the others the log stays the same
	var running, frozen []*simWriter
	pick := func(from *[]*simWriter) *simWriter {
		i := r.IntN(len(*from))
		s := (*from)[i]
		*from = slices.Delete(*from, i, i+1)
		return s
	}
	for range 40 + r.IntN(240) {
		x := r.Float64()
		switch {
		case x < .20:
			w.grow()
		case x < .23:
			w.retain()
		case x < .30:
			st.land()
		case x < .36 && len(running) < 4:
			s, err := w.writer(rule)
			if err != nil {
				return nil, err
			}
			if s != nil {
				s.met = met
				running = append(running, s)
			}
		case x < .40 && len(running) > 0:
			frozen = append(frozen, pick(&running))
		case x < .43 && len(frozen) > 0:
			running = append(running, pick(&frozen))
		case x < .45 && len(running) > 0:
			pick(&running) // crash
		case x < .47 && again && len(w.logs) < 3:
			w.create()
		case len(running) > 0:
			i := r.IntN(len(running))
			s := running[i]
			if r.Float64() < .4 {
				s.fetch()
			} else if err := s.step(); errors.Is(err, errStopped) {
				running = slices.Delete(running, i, i+1)
			} else if err != nil {
				if rule != "" {
					return err, nil // what others did made it stop
				}
				return nil, err
			}
		}
	}
	for len(st.pending) > 0 {
		st.land()
	}
	st.calm = true
	if rule == "" {
		if err := w.finish(); err != nil {
			return nil, err
		}
	}
	broken = w.check()
	report, err := w.a.Verify(context.Background())
	if errors.Is(err, ErrNotArchived) && len(st.objects) == 0 {
		return nil, nil
	}
	if err != nil {
		return broken, err
	}
	faults := slices.DeleteFunc(report.Findings, func(f Finding) bool { return f.Kind == KindLost })
	switch {
	case rule == "" && len(faults) > 0:
		return broken, fmt.Errorf("verify: %+v", faults[0])
	case errors.Is(broken, errOffChain) && len(faults) == 0:
		return broken, fmt.Errorf("verify finds nothing, but %w", broken)
	}
	return broken, nil
}

// finish archives the rest of the log with one more writer over the calm store: whatever the others left, the chain can be
// carried on to the end of the log. A chain of an earlier log stays as it is.
func (w *world) finish() error {
	s, err := w.writer("")
	if err != nil {
		return err
	}
	w.store.calm = true
	if s == nil {
		return nil
	}
	end := s.log.end
	for s.next < end {
		s.fetch()
		for s.next < s.pos {
			if err := s.step(); err != nil {
				return err
			}
		}
	}
	tail, err := w.a.Tail(context.Background(), trips.Topic, trips.Partition, -1)
	if err != nil {
		return err
	}
	if end > 0 && tail.Header.Next != end {
		return fmt.Errorf("the log ends at %d, and Tail finds %d", end, tail.Header.Next)
	}
	return nil
}

var errOffChain = errors.New("objects are off the chain")

// check holds the objects against the log.
func (w *world) check() error {
	type seg struct {
		h    *segment.Header
		recs map[int64]bool
	}
	segs := map[int64]seg{}
	var log *simLog // of the chain
	for key, data := range w.store.objects {
		recs, err := decode(key, data)
		if err != nil {
			return err
		}
		rd, err := segment.NewReader(key, data)
		if err != nil {
			return err
		}
		s := seg{rd.Header(), map[int64]bool{}}
		i := slices.IndexFunc(w.logs, func(l *simLog) bool { return l.id == s.h.TopicID })
		if i < 0 || log != nil && w.logs[i] != log {
			return fmt.Errorf("%s is of log %s: the chain is of more than one", key, s.h.TopicID)
		}
		log = w.logs[i]
		for _, got := range recs {
			want := log.record(got.Offset)
			if !record.Equal(&got, &want) {
				return fmt.Errorf("%s holds another record at %d than the log", key, got.Offset)
			}
			s.recs[got.Offset] = true
		}
		segs[s.h.Start] = s
	}
	reached, at := 0, int64(0)
	for {
		s, ok := segs[at]
		if !ok {
			break
		}
		reached++
		for o := at; o < s.h.Next; o++ {
			in := func(c segment.Class) bool {
				return slices.ContainsFunc(s.h.Skipped, func(k segment.Skip) bool { return k.Class == c && k.From <= o && o < k.To })
			}
			n := 0
			if s.recs[o] {
				n++
			}
			if in(segment.Lost) {
				n++
			}
			if log.nodata[o] && in(segment.NoData) {
				n++
			}
			if n != 1 || s.recs[o] && log.nodata[o] {
				return fmt.Errorf("offset %d is there %d times", o, n)
			}
		}
		at = s.h.Next
	}
	if reached != len(segs) {
		return fmt.Errorf("%d of %d %w", len(segs)-reached, len(segs), errOffChain)
	}
	return nil
}
