package job

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"tapedeck.dev/tapedeck/shared/archive"
)

// MaxEventTime bounds event times, ms: what 64 bits of nanoseconds hold, and so what a processor takes.
const MaxEventTime = math.MaxInt64 / 1_000_000

// Windows asks for the results of the complete windows within [From, Until), in event time. In JSON the times are RFC 3339 or ms since 1970; the
// canonical form is ms.
type Windows struct {
	From, Until int64 // ms since 1970
	// MaxLagMs: no record's event time lies more than this before the greatest record timestamp of its partition so far. It lets the plan end before the
	// archive does; −1: not known.
	MaxLagMs int64
}

type windowsObject struct {
	From   *moment `json:"from"`
	Until  *moment `json:"until"`
	MaxLag *int64  `json:"maxLag,omitempty"`
}

// moment is a time in ms.
type moment int64

// UnmarshalJSON reads ms or RFC 3339.
func (m *moment) UnmarshalJSON(data []byte) error {
	const forms = "give ms since 1970 or a time as 2026-06-01T14:00:00Z"
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return errors.New("null is no time: " + forms)
	}
	var ms int64
	if err := json.Unmarshal(data, &ms); err == nil {
		*m = moment(ms)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("%.80s is no time: %s", data, forms)
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("%.80q is no time: %s", text, forms)
	}
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		return fmt.Errorf("%s lies between two milliseconds, and event times do not", text)
	}
	*m = moment(t.UnixMilli())
	return nil
}

// MarshalJSON writes the canonical form.
func (w Windows) MarshalJSON() ([]byte, error) {
	from, until := moment(w.From), moment(w.Until)
	o := windowsObject{From: &from, Until: &until}
	if w.MaxLagMs >= 0 {
		o.MaxLag = &w.MaxLagMs
	}
	return json.Marshal(o)
}

// UnmarshalJSON reads either form of the times.
func (w *Windows) UnmarshalJSON(data []byte) error {
	var o windowsObject
	if err := strict(data, &o, "from", "until", "maxLag"); err != nil {
		return fmt.Errorf("windows: %w", err)
	}
	if o.From == nil || o.Until == nil {
		return errors.New("windows: give both from and until, in event time")
	}
	*w = Windows{From: int64(*o.From), Until: int64(*o.Until), MaxLagMs: -1}
	if o.MaxLag != nil {
		if *o.MaxLag < 0 || *o.MaxLag > MaxEventTime {
			return fmt.Errorf("windows: maxLag %d: give ms, from 0 on", *o.MaxLag)
		}
		w.MaxLagMs = *o.MaxLag
	}
	return nil
}

func (r *Request) checkWindows() error {
	w := r.Windows
	switch {
	case w.From >= w.Until:
		return errors.New("windows: until is exclusive and must be after from")
	case w.From < -MaxEventTime || w.Until > MaxEventTime:
		return fmt.Errorf("windows: event times reach from %d to %d ms", -MaxEventTime, MaxEventTime)
	case r.From.Kind != Earliest || r.Until.Kind != End || len(r.Bounds) > 0:
		return errors.New("windows: the plan finds the range of records for them; leave out from, until and bounds")
	}
	return nil
}

// Window is one window: event times [Start, End), ms since 1970.
type Window struct {
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

// WindowsPlan is what the windows of a request come to with a pipeline's.
type WindowsPlan struct {
	SizeMs int64 `json:"sizeMs"`
	// First to Last are those that lie wholly within the request's; each is complete.
	First Window `json:"first"`
	Last  Window `json:"last"`
	Count int64  `json:"count"`
	// WarmUp is what is read ahead of the first object that holds a record timestamp of First or later, over all partitions: event times may run ahead
	// of timestamps.
	WarmUp Amount `json:"warmUp"`
}

// Amount of objects, whole ones.
type Amount struct {
	Segments int   `json:"segments"`
	Records  int64 `json:"records"`
	Bytes    int64 `json:"bytes"`
}

// AddBefore adds those of segments that come before the first one which holds a record timestamp ≥ ts.
func (a *Amount) AddBefore(segments []archive.PlannedSegment, ts int64) {
	for _, s := range segments {
		if s.Count > 0 && s.MaxTimestamp >= ts {
			return
		}
		a.Segments++
		a.Records += s.Count
		a.Bytes += s.Bytes
	}
}

// Within returns the whole windows of size ms, aligned as a pipeline's (the first begins at 0), that lie within w; an error where there is none.
func (w Windows) Within(size int64) (*WindowsPlan, error) {
	last := floorTo(w.Until, size)
	first := -floorTo(-w.From, size)
	if first >= last {
		return nil, fmt.Errorf("no whole window of %s lies within [%s, %s): windows begin at multiples of their size; the one that holds from is [%s, %s)",
			time.Duration(size)*time.Millisecond, TimeText(w.From), TimeText(w.Until), TimeText(floorTo(w.From, size)), TimeText(floorTo(w.From, size)+size))
	}
	return &WindowsPlan{SizeMs: size, First: Window{first, first + size}, Last: Window{last - size, last}, Count: (last - first) / size}, nil
}

// floorTo is the greatest multiple of size ≤ n; size > 0.
func floorTo(n, size int64) int64 {
	rest := n % size
	if rest < 0 {
		rest += size
	}
	return n - rest
}

// TimeText writes ms since 1970 for people, in UTC.
func TimeText(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.999Z07:00")
}
