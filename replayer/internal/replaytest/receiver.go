package replaytest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"tapedeck.dev/tapedeck/replayer/target"
	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/session"
)

// Receiver is a target that keeps what it is given. Every record is kept in the order taken, so that a test can compare.
type Receiver struct {
	*httptest.Server
	t testing.TB

	// Pipe is what GET /pipelines/{name} answers.
	Pipe session.Pipeline
	// Before runs ahead of each call with its method and path, without lock; a status ≠ 0 is answered in its place, and −1
	// drops the connection.
	Before func(method, path string) int
	// After runs when a call has been done; true drops the connection, so that the caller does not learn the answer.
	After func(method, path string) bool
	// MaxSkew in ms, 0 for none: a partition may not be further than this ahead of the furthest behind.
	MaxSkew int64
	// Lie changes the status of a finished session.
	Lie func(*session.Status)
	// Seen, where it is set, is told the header of every segment received.
	Seen func(*segment.Header)

	mu       sync.Mutex
	sessions map[string]*rsession
	opened   []session.Request // every opening
	puts     int
	busy     int
}

type rsession struct {
	req   session.Request
	state session.State
	parts map[record.TopicPartition]*rpart
}

type rpart struct {
	rng      session.Range
	expected int64
	recs     []record.Record
	reached  int64 // largest timestamp
	sums     []uint64
	stored   int // recs[:stored] and storedAt survive a restart
	storedAt int64
}

// NewReceiver starts a receiver of one pipeline, and stops it with the test.
func NewReceiver(t testing.TB, pipe session.Pipeline) *Receiver {
	r := &Receiver{t: t, Pipe: pipe, sessions: map[string]*rsession{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pipelines/{name}", r.pipeline)
	mux.HandleFunc("PUT /sessions/{name}", r.open)
	mux.HandleFunc("PUT /sessions/{name}/segments/{topic}/{partition}/{start}", r.segment)
	mux.HandleFunc("GET /sessions/{name}", r.status)
	mux.HandleFunc("POST /sessions/{name}/finish", r.finish)
	mux.HandleFunc("DELETE /sessions/{name}", r.cancel)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.Before != nil {
			switch code := r.Before(q.Method, q.URL.Path); {
			case code < 0:
				panic(http.ErrAbortHandler)
			case code > 0:
				service.WriteError(w, code, "as the test wants")
				return
			}
		}
		rec := httptest.NewRecorder()
		mux.ServeHTTP(rec, q)
		if r.After != nil && r.After(q.Method, q.URL.Path) {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes())
	}))
	t.Cleanup(r.Close)
	return r
}

// Config is the target as a replayer would have it configured.
func (r *Receiver) Config() target.Config {
	u, err := url.Parse(r.URL)
	if err != nil {
		r.t.Fatal(err)
	}
	return target.Config{Name: "proc", Type: target.TypeProcessor, URL: u, Pipeline: r.Pipe.Name}
}

// Restart takes every session back to what it had stored; with forget, sessions are gone altogether.
func (r *Receiver) Restart(forget bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if forget {
		r.sessions = map[string]*rsession{}
		return
	}
	for _, s := range r.sessions {
		if s.state != session.Open {
			continue
		}
		for _, p := range s.parts {
			p.expected, p.recs, p.sums = p.storedAt, p.recs[:p.stored], p.sums[:p.stored]
		}
	}
}

// StoreAll has everything taken so far survive a restart.
func (r *Receiver) StoreAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		for _, p := range s.parts {
			p.stored, p.storedAt = len(p.recs), p.expected
		}
	}
}

// Taken returns the records that a session took of a partition, in order.
func (r *Receiver) Taken(name string, tp record.TopicPartition) []record.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[name]; s != nil && s.parts[tp] != nil {
		return append([]record.Record(nil), s.parts[tp].recs...)
	}
	return nil
}

// State of a session, "" for none.
func (r *Receiver) State(name string) session.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[name]; s != nil {
		return s.state
	}
	return ""
}

// Opened returns the request of every opening so far.
func (r *Receiver) Opened() []session.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]session.Request(nil), r.opened...)
}

// Puts is the number of segments received, refused ones included.
func (r *Receiver) Puts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.puts
}

// Busy is the number of segments refused for MaxSkew.
func (r *Receiver) Busy() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.busy
}

func (r *Receiver) pipeline(w http.ResponseWriter, q *http.Request) {
	if q.PathValue("name") != r.Pipe.Name {
		service.WriteError(w, http.StatusNotFound, "no pipeline %s", q.PathValue("name"))
		return
	}
	service.WriteJSON(w, http.StatusOK, r.Pipe)
}

func (r *Receiver) open(w http.ResponseWriter, q *http.Request) {
	var req session.Request
	if err := json.NewDecoder(q.Body).Decode(&req); err != nil {
		service.WriteError(w, http.StatusBadRequest, "%v", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = append(r.opened, req)
	if req.PipelineHash != "" && req.PipelineHash != r.Pipe.Hash {
		service.WriteError(w, http.StatusConflict, "planned with pipeline hash %s, here it is %s", req.PipelineHash, r.Pipe.Hash)
		return
	}
	name := q.PathValue("name")
	s := r.sessions[name]
	if s == nil {
		s = &rsession{req: req, state: session.Open, parts: map[record.TopicPartition]*rpart{}}
		for _, rng := range req.Ranges {
			s.parts[rng.TopicPartition] = &rpart{rng: rng, expected: rng.From, storedAt: rng.From, reached: -1}
		}
		r.sessions[name] = s
	}
	a, b := s.req, req
	a.Epoch, b.Epoch = 0, 0
	if x, y := encode(a), encode(b); x != y {
		service.WriteError(w, http.StatusConflict, "another request: %s is not %s", y, x)
		return
	}
	if req.Epoch < s.req.Epoch {
		service.WriteError(w, http.StatusConflict, "epoch %d is below %d", req.Epoch, s.req.Epoch)
		return
	}
	s.req.Epoch = req.Epoch
	service.WriteJSON(w, http.StatusOK, r.statusOf(name, s))
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// session finds the session of a call, and refuses a lower epoch; a higher one too where the session must have been taken over first.
func (r *Receiver) session(w http.ResponseWriter, q *http.Request, takenOver bool) *rsession {
	s := r.sessions[q.PathValue("name")]
	if s == nil {
		service.WriteError(w, http.StatusNotFound, "no session %s", q.PathValue("name"))
		return nil
	}
	epoch, err := strconv.ParseInt(q.URL.Query().Get("epoch"), 10, 64)
	if err != nil {
		service.WriteError(w, http.StatusBadRequest, "epoch: %v", err)
		return nil
	}
	if epoch < s.req.Epoch {
		service.WriteError(w, http.StatusConflict, "epoch %d is below %d", epoch, s.req.Epoch)
		return nil
	}
	if takenOver && epoch > s.req.Epoch {
		service.WriteError(w, http.StatusConflict, "epoch %d is above %d: take the session over first", epoch, s.req.Epoch)
		return nil
	}
	if !takenOver {
		s.req.Epoch = epoch
	}
	return s
}

func (r *Receiver) segment(w http.ResponseWriter, q *http.Request) {
	data, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.puts++
	s := r.session(w, q, true)
	if s == nil {
		return
	}
	if s.state != session.Open {
		service.WriteError(w, http.StatusConflict, "the session is %s", s.state)
		return
	}
	n, err := strconv.Atoi(q.PathValue("partition"))
	p := s.parts[record.TopicPartition{Topic: q.PathValue("topic"), Partition: int32(n)}]
	if err != nil || p == nil {
		service.WriteError(w, http.StatusNotFound, "no range of this partition")
		return
	}
	rd, err := segment.NewReader(q.URL.Path, data)
	if err != nil {
		service.WriteError(w, http.StatusUnprocessableEntity, "%v", err)
		return
	}
	h := rd.Header()
	if r.Seen != nil {
		r.Seen(h)
	}
	if h.Start > p.expected {
		service.WriteJSON(w, http.StatusConflict, session.Ack{Expected: p.expected, Message: "a skip"})
		return
	}
	if need, ok := s.behind(p, r.MaxSkew); ok && p.expected < p.rng.Until {
		r.busy++
		service.WriteJSON(w, http.StatusServiceUnavailable, session.Ack{Expected: p.expected, Needs: &need, Message: "too far ahead"})
		return
	}
	var rec record.Record
	for {
		if err := rd.Next(&rec); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			service.WriteError(w, http.StatusUnprocessableEntity, "%v", err)
			return
		}
		if rec.Offset >= p.expected && rec.Offset < p.rng.Until {
			p.recs = append(p.recs, rec)
			p.sums = append(p.sums, segment.Checksum(rd.Datum()))
			p.reached = max(p.reached, rec.Timestamp)
		}
	}
	p.expected = max(p.expected, min(h.Next, p.rng.Until))
	service.WriteJSON(w, http.StatusOK, session.Ack{Expected: p.expected})
}

// behind names the unfinished partition that p is too far ahead of.
func (s *rsession) behind(p *rpart, skew int64) (record.TopicPartition, bool) {
	var least *rpart
	for _, o := range s.parts {
		if o.expected < o.rng.Until && (least == nil || o.reached < least.reached || o.reached == least.reached && o.rng.Less(least.rng.TopicPartition)) {
			least = o
		}
	}
	if skew == 0 || least == nil || least == p || p.reached <= least.reached+skew {
		return record.TopicPartition{}, false
	}
	return least.rng.TopicPartition, true
}

func (r *Receiver) statusOf(name string, s *rsession) session.Status {
	st := session.Status{Name: name, Pipeline: s.req.Pipeline, Sender: s.req.Sender, Epoch: s.req.Epoch, State: s.state, Outputs: map[string]string{"results": name + ".out"}}
	for _, rng := range s.req.Ranges {
		p := s.parts[rng.TopicPartition]
		pr := session.Progress{TopicPartition: rng.TopicPartition, Expected: p.expected, Count: int64(len(p.recs)), First: -1, Last: -1}
		var sum uint64
		for i := range p.recs {
			sum += p.sums[i]
		}
		if n := len(p.recs); n > 0 {
			pr.First, pr.Last = p.recs[0].Offset, p.recs[n-1].Offset
		}
		pr.Checksum = fmt.Sprintf("%016x", sum)
		st.Progress = append(st.Progress, pr)
		st.Emitted += pr.Count
	}
	if r.Lie != nil && s.state == session.Finished {
		r.Lie(&st)
	}
	return st
}

func (r *Receiver) status(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[q.PathValue("name")]
	if s == nil {
		service.WriteError(w, http.StatusNotFound, "no session %s", q.PathValue("name"))
		return
	}
	service.WriteJSON(w, http.StatusOK, r.statusOf(q.PathValue("name"), s))
}

func (r *Receiver) finish(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.session(w, q, true)
	if s == nil {
		return
	}
	for _, p := range s.parts {
		if p.expected < p.rng.Until {
			service.WriteError(w, http.StatusConflict, "%s is at %d of %d", p.rng.TopicPartition, p.expected, p.rng.Until)
			return
		}
	}
	if s.state == session.Open {
		s.state = session.Finished
	}
	service.WriteJSON(w, http.StatusOK, r.statusOf(q.PathValue("name"), s))
}

func (r *Receiver) cancel(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.session(w, q, false)
	if s == nil {
		return
	}
	if s.state != session.Open && s.state != session.Cancelled {
		service.WriteError(w, http.StatusConflict, "the session is %s", s.state)
		return
	}
	s.state = session.Cancelled
	service.WriteJSON(w, http.StatusOK, r.statusOf(q.PathValue("name"), s))
}
