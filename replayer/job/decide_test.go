package job

import (
	"testing"
	"time"
)

const leaseMs = 15000

func running(owner string, epoch int64) Job {
	return Job{Request: Request{Name: "j"}, State: Running, Owner: owner, Epoch: epoch, LeaseMs: leaseMs, Plan: &Pinned{}}
}

func TestTakeover(t *testing.T) {
	lease := leaseMs * time.Millisecond
	tests := []struct {
		name string
		cur  Job
		ask  Ask
		want ActionKind
	}{
		{"lease not over", running("a", 3), Ask{By: "b", Elapsed: lease - 1}, Wait},
		{"lease over", running("a", 3), Ask{By: "b", Elapsed: lease}, Append},
		{"released", running("", 3), Ask{By: "b"}, Append},
		{"our own after a restart", running("b", 3), Ask{By: "b", Restarted: true}, Append},
		{"our own by name alone", running("b", 3), Ask{By: "b"}, Wait},
		{"our own by name alone, lease over", running("b", 3), Ask{By: "b", Elapsed: lease}, Append},
		{"another's after our restart", running("a", 3), Ask{By: "b", Restarted: true}, Wait},
	}
	for _, c := range tests {
		c.ask.Event, c.ask.LeaseMs = Takeover, leaseMs
		for _, s := range []State{Starting, Running, Cancelling} {
			c.cur.State = s
			got := Next(c.cur, c.ask)
			if got.Kind != c.want {
				t.Errorf("%s, %s: got %s, want %s", c.name, s, got.Kind, c.want)
			}
			if got.Kind == Append && (got.Job.Owner != "b" || got.Job.Epoch != 4 || got.Job.State != s) {
				t.Errorf("%s, %s: taken as %s", c.name, s, got.Job.Describe())
			}
			if got.Kind == Wait && got.Wait != lease-c.ask.Elapsed {
				t.Errorf("%s: waits %s", c.name, got.Wait)
			}
		}
	}
	for _, s := range []State{Paused, Completed, Cancelled, Failed} {
		j := running("", 3)
		j.State = s
		if got := Next(j, Ask{Event: Takeover, By: "b", Elapsed: time.Hour}); got.Kind != Refuse {
			t.Errorf("%s is taken over: %s", s, got.Kind)
		}
	}
}

// An owner's word counts under the present epoch only, whatever the state.
func TestOwnersWordIsFenced(t *testing.T) {
	for _, e := range []Event{Started, Delivered, CancelDone, Error, Renew, Release} {
		for _, s := range States {
			j := running("b", 4)
			j.State = s
			if got := Next(j, Ask{Event: e, By: "a", Epoch: 3}); got.Kind != Fenced {
				t.Errorf("%s in %s under a lower epoch: %s", e, s, got.Kind)
			}
		}
	}
	for _, e := range []Event{Renew, Release} {
		if got := Next(running("b", 4), Ask{Event: e, By: "a", Epoch: 4}); got.Kind != Fenced {
			t.Errorf("%s by somebody who does not own the job: %s", e, got.Kind)
		}
	}
}

func TestPauseRacingWithCompletion(t *testing.T) {
	j := running("a", 1)
	pause, delivered := Ask{Event: Pause, By: "u"}, Ask{Event: Delivered, By: "a", Epoch: 1, Target: &Outcome{Emitted: 5}}

	// The pause is first: the owner finds PAUSED, and the job is complete all the same.
	paused := Next(j, pause)
	if paused.Kind != Append || paused.Job.State != Paused || paused.Job.Owner != "" || paused.Job.Epoch != 1 {
		t.Fatalf("pause: %s %s", paused.Kind, paused.Job.Describe())
	}
	if got := Next(paused.Job, delivered); got.Kind != Append || got.Job.State != Completed || got.Job.Target.Emitted != 5 {
		t.Errorf("delivered after pause: %s %s", got.Kind, got.Job.Describe())
	}
	// A renewal on the way finds out that it is paused.
	if got := Next(paused.Job, Ask{Event: Renew, By: "a", Epoch: 1}); got.Kind != Fenced {
		t.Errorf("renewal after pause: %s", got.Kind)
	}
	// Completion is first: the pause is refused.
	done := Next(j, delivered)
	if got := Next(done.Job, pause); got.Kind != Refuse || got.Err == nil {
		t.Errorf("pause after completion: %s", got.Kind)
	}
	// Paused and resumed behind the owner's back: its word counts no more.
	resumed := Next(paused.Job, Ask{Event: Resume, By: "b", LeaseMs: leaseMs})
	if resumed.Job.State != Running || resumed.Job.Owner != "b" || resumed.Job.Epoch != 2 {
		t.Errorf("resume: %s", resumed.Job.Describe())
	}
	if got := Next(resumed.Job, delivered); got.Kind != Fenced {
		t.Errorf("delivered under the old epoch: %s", got.Kind)
	}
}

func TestCancelGoesToWhoIsAtWork(t *testing.T) {
	got := Next(running("a", 1), Ask{Event: Cancel, By: "b"})
	if got.Job.State != Cancelling || got.Job.Owner != "a" || got.Job.Epoch != 1 {
		t.Errorf("cancel of a running job: %s", got.Job.Describe())
	}
	for _, s := range []State{Paused, Failed} {
		j := running("", 1)
		j.State, j.Error = s, "x"
		got := Next(j, Ask{Event: Cancel, By: "b"})
		if got.Job.State != Cancelling || got.Job.Owner != "b" || got.Job.Epoch != 2 || got.Job.Error != "" {
			t.Errorf("cancel of %s: %s", s, got.Job.Describe())
		}
	}
}

func TestRetryKeepsThePlan(t *testing.T) {
	j := running("a", 1)
	failed := Next(j, Ask{Event: Error, By: "a", Epoch: 1, Error: "broken", Progress: []Progress{{Expected: 7}}, At: time.Unix(9, 0)})
	if failed.Job.State != Failed || failed.Job.Error != "broken" || failed.Job.Owner != "" || failed.Job.FinishedAt == nil {
		t.Fatalf("error: %+v", failed.Job)
	}
	again := Next(failed.Job, Ask{Event: Retry, By: "b", LeaseMs: leaseMs})
	if again.Job.State != Starting || again.Job.Plan == nil || again.Job.Progress[0].Expected != 7 || again.Job.Epoch != 2 || again.Job.FinishedAt != nil || again.Job.Error != "" {
		t.Errorf("retry: %+v", again.Job)
	}
}

func TestRenewAndRelease(t *testing.T) {
	j := running("a", 1)
	got := Next(j, Ask{Event: Renew, By: "a", Epoch: 1, LeaseMs: 5, Progress: []Progress{{Expected: 3}}})
	if got.Kind != Append || got.Job.Owner != "a" || got.Job.LeaseMs != 5 || got.Job.Progress[0].Expected != 3 {
		t.Errorf("renew: %+v", got)
	}
	if got := Next(got.Job, Ask{Event: Renew, By: "a", Epoch: 1}); got.Job.Progress[0].Expected != 3 {
		t.Error("a renewal without progress forgets it")
	}
	got = Next(j, Ask{Event: Release, By: "a", Epoch: 1})
	if got.Job.Owner != "" || got.Job.State != Running {
		t.Errorf("release: %s", got.Job.Describe())
	}
	// What changes nothing appends nothing.
	j.State = Paused
	if got := Next(j, Ask{Event: Pause, By: "x"}); got.Kind != Nothing {
		t.Errorf("pause again: %s", got.Kind)
	}
}

// Every state that Next writes is owned exactly when somebody must work on it.
func TestOwnedExactlyWhenAtWork(t *testing.T) {
	for _, s := range States {
		for _, e := range Events {
			j := running("a", 1)
			j.State = s
			if !s.Owned() {
				j.Owner = ""
			}
			got := Next(j, Ask{Event: e, By: "b", Epoch: 1, Elapsed: time.Hour, LeaseMs: leaseMs, Plan: &Pinned{}})
			if got.Kind == Append && got.Job.State.Owned() != (got.Job.Owner != "") {
				t.Errorf("%s × %s: %s", s, e, got.Job.Describe())
			}
		}
	}
}

func TestProofs(t *testing.T) {
	p := EmptyProof()
	for _, q := range []Proof{{Count: 2, First: 3, Last: 5, Checksum: Hex(1<<63 + 7)}, EmptyProof(), {Count: 1, First: 9, Last: 9, Checksum: Hex(1 << 63)}} {
		if err := p.Join(q); err != nil {
			t.Fatal(err)
		}
	}
	if want := (Proof{Count: 3, First: 3, Last: 9, Checksum: Hex(7)}); p != want {
		t.Errorf("got %+v, want %+v", p, want)
	}
	if err := p.Join(Proof{Count: 1, Checksum: "x"}); err == nil {
		t.Error("a checksum that is none is taken")
	}
}
