package main

import (
	"bytes"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
)

// progress is a job on its way: not planned yet, planned, half way, done.
func progress() []*manager.View {
	at := func(state job.State, segments int, bytes int64, planned int64) *manager.View {
		return &manager.View{Name: "june", State: state, Totals: manager.Totals{Partitions: 2, Segments: segments, SegmentsPlanned: int(planned >> 20), Bytes: bytes, BytesPlanned: planned}}
	}
	return []*manager.View{at(job.Starting, 0, 0, 0), at(job.Running, 0, 0, 4<<20), at(job.Running, 2, 2<<20, 4<<20), at(job.Completed, 4, 4<<20, 4<<20)}
}

func TestBarOnATerminal(t *testing.T) {
	var out bytes.Buffer
	m := newBar(&out)
	for _, v := range progress() {
		m.show(v)
	}
	m.end()
	text := out.String()
	for _, want := range []string{"june STARTING", "june RUNNING", " 50%", "june COMPLETED", "100%", "4.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	if !strings.Contains(text, "\r") || !strings.HasSuffix(text, "\n") {
		t.Errorf("%q does not write over itself, or leaves the cursor in the line", text)
	}
}

func TestPlainLinesElsewhere(t *testing.T) {
	var out bytes.Buffer
	m := newMeter(&out)
	for _, v := range progress() {
		m.show(v)
	}
	m.end()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != "june STARTING" || !strings.Contains(lines[1], "june RUNNING   0%") || !strings.Contains(lines[2], "june COMPLETED 100%") {
		t.Errorf("%q: want a line for each state", lines)
	}
	if strings.ContainsAny(out.String(), "\r\x1b") {
		t.Errorf("%q holds what only a terminal understands", out.String())
	}
}
