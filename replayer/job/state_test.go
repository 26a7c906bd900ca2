package job

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Every pair of state and event, as the page for users prints it: the page is the expectation, so it cannot go stale.
func TestTableIsTheDocumentedOne(t *testing.T) {
	page, err := os.ReadFile("../../docs/replayer.md")
	if err != nil {
		t.Fatal(err)
	}
	header := regexp.MustCompile(`(?m)^\| +\| started .*$`).FindString(string(page))
	if header == "" {
		t.Fatal("no table of events in docs/replayer.md")
	}
	cells := func(line string) []string {
		parts := strings.Split(strings.Trim(line, "|"), "|")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		return parts
	}
	events := cells(header)[1:]
	if len(events) != len(Events) {
		t.Fatalf("the page has %d events, the code %d", len(events), len(Events))
	}
	seen := 0
	for _, s := range States {
		line := regexp.MustCompile(`(?m)^\| ` + string(s) + ` \|.*$`).FindString(string(page))
		if line == "" {
			t.Fatalf("no row for %s", s)
		}
		for i, want := range cells(line)[1:] {
			e := Event(events[i])
			if e != Events[i] {
				t.Fatalf("column %d is %s, the code has %s", i, e, Events[i])
			}
			got, err := Move(s, e)
			seen++
			switch want {
			case "–":
				var illegal *IllegalError
				if !errors.As(err, &illegal) || got != s {
					t.Errorf("%s × %s: got %s, %v; want refused", s, e, got, err)
				}
			case "=", "↻":
				if err != nil || got != s || (want == "↻") != (e == Takeover) {
					t.Errorf("%s × %s: got %s, %v; want the same state (%s)", s, e, got, err, want)
				}
			default:
				if err != nil || string(got) != want {
					t.Errorf("%s × %s: got %s, %v; want %s", s, e, got, err, want)
				}
			}
		}
	}
	if want := len(States) * len(Events); seen != want {
		t.Errorf("the page has %d pairs, want %d", seen, want)
	}
}

func TestIllegalSaysWhatIsPossible(t *testing.T) {
	_, err := Move(Failed, Pause)
	if got, want := err.Error(), "pause is not possible: the job is FAILED; possible now: cancel, retry"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err = Move(Completed, Retry)
	if !strings.Contains(err.Error(), "final") || !strings.Contains(err.Error(), "another name") {
		t.Errorf("got %q", err)
	}
}

func TestTakeoverExactlyWhereSomebodyMustWork(t *testing.T) {
	for _, s := range States {
		_, err := Move(s, Takeover)
		if (err == nil) != s.Owned() {
			t.Errorf("%s: takeover %v, owned %v", s, err, s.Owned())
		}
		if s.Final() && len(Possible(s)) > 0 {
			t.Errorf("%s is final, and yet %v", s, Possible(s))
		}
	}
}
