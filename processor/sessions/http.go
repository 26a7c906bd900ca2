package sessions

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"

	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/session"
)

// maxRequestBytes bounds the body of PUT /sessions/{name}; the decision log is in it.
const maxRequestBytes = 64 << 20

// Routes adds the receiver protocol to mux.
func (m *Manager) Routes(mux *http.ServeMux) {
	mux.HandleFunc("PUT /sessions/{name}", m.serveOpen)
	mux.HandleFunc("POST /sessions/check", m.serveCheck)
	mux.HandleFunc("PUT /sessions/{name}/segments/{topic}/{partition}/{start}", m.serveSegment)
	mux.HandleFunc("GET /sessions/{name}", m.serveGet)
	mux.HandleFunc("GET /sessions", m.serveList)
	mux.HandleFunc("POST /sessions/{name}/finish", m.serveFinish)
	mux.HandleFunc("DELETE /sessions/{name}", m.serveCancel)
}

func readRequest(w http.ResponseWriter, r *http.Request) (session.Request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		return session.Request{}, tooLarge(err, maxRequestBytes, "")
	}
	return ParseRequest(body)
}

func (m *Manager) serveOpen(w http.ResponseWriter, r *http.Request) {
	req, err := readRequest(w, r)
	if err != nil {
		reply(w, nil, err)
		return
	}
	st, err := m.Open(r.Context(), r.PathValue("name"), req)
	reply(w, st, err)
}

func (m *Manager) serveCheck(w http.ResponseWriter, r *http.Request) {
	req, err := readRequest(w, r)
	if err == nil {
		_, _, _, err = m.validate(r.Context(), req)
	}
	if err != nil {
		reply(w, nil, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (m *Manager) serveSegment(w http.ResponseWriter, r *http.Request) {
	partition, perr := strconv.ParseInt(r.PathValue("partition"), 10, 32)
	start, serr := strconv.ParseInt(r.PathValue("start"), 10, 64)
	if perr != nil || serr != nil || partition < 0 || start < 0 {
		reply(w, nil, malformed("partition %q and start %q must be numbers ≥ 0", r.PathValue("partition"), r.PathValue("start")))
		return
	}
	epoch, err := epochOf(r)
	if err != nil {
		reply(w, nil, err)
		return
	}
	// The body is in memory until it is fed; what all bodies together may take is reserved before reading.
	weight := r.ContentLength
	if weight < 0 || weight > m.cfg.MaxSegmentBytes {
		weight = m.cfg.MaxSegmentBytes
	}
	if !m.uploads.TryAcquire(weight) {
		reply(w, nil, later("segments of %d bytes are being received already (session.max.upload.bytes); repeat the call", m.cfg.MaxUploadBytes))
		return
	}
	defer m.uploads.Release(weight)
	var body bytes.Buffer
	// Not more than a step ahead of the bytes that came: the length is only a claim.
	body.Grow(int(min(max(r.ContentLength, 0), 64<<20)) + bytes.MinRead)
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, m.cfg.MaxSegmentBytes)); err != nil {
		reply(w, nil, tooLarge(err, m.cfg.MaxSegmentBytes, " (session.max.segment.bytes)"))
		return
	}
	tp := kafka.TP{Topic: r.PathValue("topic"), Partition: int32(partition)}
	ack, err := m.Segment(r.Context(), r.PathValue("name"), epoch, tp, start, body.Bytes())
	reply(w, ack, err)
}

func (m *Manager) serveGet(w http.ResponseWriter, r *http.Request) {
	st, err := m.Get(r.Context(), r.PathValue("name"))
	reply(w, st, err)
}

func (m *Manager) serveList(w http.ResponseWriter, r *http.Request) {
	sts, err := m.List(r.Context())
	reply(w, sts, err)
}

func (m *Manager) serveFinish(w http.ResponseWriter, r *http.Request) {
	epoch, err := epochOf(r)
	var st session.Status
	if err == nil {
		st, err = m.Finish(r.Context(), r.PathValue("name"), epoch)
	}
	reply(w, st, err)
}

func (m *Manager) serveCancel(w http.ResponseWriter, r *http.Request) {
	epoch, err := epochOf(r)
	var st session.Status
	if err == nil {
		st, err = m.Cancel(r.Context(), r.PathValue("name"), epoch)
	}
	reply(w, st, err)
}

func epochOf(r *http.Request) (int64, error) {
	v := r.URL.Query().Get("epoch")
	epoch, err := strconv.ParseInt(v, 10, 64)
	if err != nil || epoch < 0 {
		return 0, malformed("query parameter epoch=%q must be a number ≥ 0", v)
	}
	return epoch, nil
}

func tooLarge(err error, limit int64, setting string) error {
	var e *http.MaxBytesError
	if errors.As(err, &e) {
		return answer(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes%s", limit, setting)
	}
	return malformed("read the body: %v", err)
}

// reply writes v, or the error. An Ack is written as it is, so that the sender can go on by it.
func reply(w http.ResponseWriter, v any, err error) {
	if err == nil {
		service.WriteJSON(w, http.StatusOK, v)
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		service.WriteError(w, http.StatusInternalServerError, "%v", err)
		return
	}
	if e.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	if e.Ack != nil {
		service.WriteJSON(w, e.Status, e.Ack)
		return
	}
	service.WriteError(w, e.Status, "%s", e.Reason)
}
