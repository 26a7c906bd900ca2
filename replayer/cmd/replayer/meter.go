package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/replayer/manager"
)

// meter shows a job's progress to people.
type meter interface {
	show(*manager.View)
	end()
}

// newMeter is a bar on a terminal, and plain lines elsewhere.
func newMeter(w io.Writer) meter {
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return newBar(w)
		}
	}
	return &lines{w: w}
}

// lineEvery is between plain lines of progress.
const lineEvery = 5 * time.Second

// lines writes one at each change of state, and one every few seconds.
type lines struct {
	w     io.Writer
	state job.State
	at    time.Time
}

func (m *lines) show(v *manager.View) {
	if v.State == m.state && time.Since(m.at) < lineEvery {
		return
	}
	fmt.Fprintln(m.w, meterLine(v))
	m.state, m.at = v.State, time.Now()
}

func (m *lines) end() {}

func meterLine(v *manager.View) string {
	t := v.Totals
	if t.SegmentsPlanned == 0 {
		return fmt.Sprintf("%s %s", v.Name, v.State)
	}
	return fmt.Sprintf("%s %s %3d%%  segments %d/%d  partitions %d/%d  records %d  MiB %.1f/%.1f%s", v.Name, v.State,
		int64(t.Segments)*100/int64(t.SegmentsPlanned), t.Segments, t.SegmentsPlanned, t.PartitionsDone, t.Partitions, t.Records,
		float64(t.Bytes)/(1<<20), float64(t.BytesPlanned)/(1<<20), now(v))
}

// now is what the replayer at work is doing: its rate, and what it waits for.
func now(v *manager.View) string {
	switch {
	case v.Live == nil:
		return ""
	case v.Live.Waiting != "":
		return fmt.Sprintf("  %.0f records/s, waiting: %s", v.Live.RecordsPerSecond, v.Live.Waiting)
	}
	return fmt.Sprintf("  %.0f records/s", v.Live.RecordsPerSecond)
}

// bar counts the bytes of the planned segments that the target has accepted.
type bar struct {
	w       io.Writer
	bar     *progressbar.ProgressBar
	planned int64
}

func newBar(w io.Writer) *bar { return &bar{w: w, planned: -1} }

func (m *bar) show(v *manager.View) {
	t := v.Totals
	if planned := max(t.BytesPlanned, 1); planned != m.planned { // it is not known before the job is planned
		m.planned = planned
		m.bar = progressbar.NewOptions64(planned, progressbar.OptionSetWriter(m.w), progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true), progressbar.OptionShowCount(),
			progressbar.OptionFullWidth(), progressbar.OptionThrottle(0), progressbar.OptionSetPredictTime(true))
	}
	m.bar.Describe(fmt.Sprintf("%s %s %d/%d partitions, %d records%s", v.Name, v.State, t.PartitionsDone, t.Partitions, t.Records, now(v)))
	_ = m.bar.Set64(min(t.Bytes, m.planned)) // it fails where it is over, and shows nothing then
}

func (m *bar) end() {
	if m.bar != nil {
		fmt.Fprintln(m.w)
	}
}
