package sessions

import (
	"reflect"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/session"
)

func sampleStored() Stored {
	s := newStored(request(), "h1")
	s.Epoch, s.Request.Epoch = 3, 3
	s.TopicIDs = map[string]string{"out.replay.again": "id9"}
	s.Parts[0] = StoredPart{TopicPartition: tp(0), Position: 40, Low: 30, M: 7, W: 9, Count: 33, First: 5, Last: 38, Checksum: "00ff00ff00ff00ff"}
	s.Emitted, s.Late = 4, 1
	return s
}

func TestStoredRoundTrip(t *testing.T) {
	s := sampleStored()
	got, err := ParseStored(FormatStored(s), request())
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Fatalf("%v\n got %+v\nwant %+v", err, got, s)
	}
}

func TestParseStoredRefuses(t *testing.T) {
	good := string(FormatStored(sampleStored()))
	for name, c := range map[string][2]string{
		"version":            {`"v":1`, `"v":2`},
		"state":              {`"OPEN"`, `"AJAR"`},
		"unknown field":      {`"late":1`, `"latest":1`},
		"checksum":           {`00ff00ff00ff00ff`, `00ff`},
		"low above position": {`"low":30`, `"low":41`},
		"low below range":    {`"low":30`, `"low":4`},
		"beyond the range":   {`"position":40`, `"position":101`},
		"other partition":    {`"partition":1`, `"partition":8`},
		"trailing":           {`}`, `}`},
	} {
		text := strings.Replace(good, c[0], c[1], 1)
		if name == "trailing" {
			text += "{}"
		}
		if text == good {
			t.Fatalf("%s: nothing was changed in %s", name, good)
		}
		if s, err := ParseStored([]byte(text), request()); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func FuzzParseStored(f *testing.F) {
	f.Add(FormatStored(sampleStored()))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStored(b, request())
		if err != nil {
			return
		}
		again, err := ParseStored(FormatStored(s), request())
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Fatalf("%+v → %+v, %v", s, again, err)
		}
	})
}

func TestStoredInTakesTheLast(t *testing.T) {
	early := newStored(request(), "h1")
	early.Request.Epoch = 1
	recs := []record.Record{
		{Key: []byte("again/request"), Value: canonical(request())},
		{Key: []byte("again"), Value: FormatStored(early)},
		{Key: []byte("other/request"), Value: canonical(request())},
		{Key: []byte("again"), Value: FormatStored(sampleStored())},
	}
	got, err := storedIn(recs)
	if err != nil || len(got) != 1 || got["again"].Epoch != 3 || got["again"].Parts[0].Count != 33 {
		t.Fatalf("%+v %v", got, err)
	}
	if !sameRequest(got["again"].Request, request()) {
		t.Error("the request did not come back")
	}
	if _, err := storedIn(recs[1:2]); err == nil {
		t.Error("progress without a request")
	}
}

func TestStatusOfStored(t *testing.T) {
	s := sampleStored()
	s.Request.Sender, s.DecisionsCompared = "me", true
	if st := s.status("again", nil); st.Sender != "me" || !st.DecisionsCompared {
		t.Errorf("%+v", st)
	}
	if st := s.status("again", nil); st.Progress[0].Expected != 30 || st.Progress[0].Count != 33 {
		t.Errorf("an open session goes back to its low positions: %+v", st.Progress)
	}
	s.State = session.Finished
	if st := s.status("again", nil); st.Progress[0].Expected != 40 {
		t.Errorf("%+v", st.Progress)
	}
}
