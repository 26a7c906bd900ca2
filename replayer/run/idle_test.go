package run

import (
	"testing"
	"time"
)

func TestMeter(t *testing.T) {
	var m meter
	at := time.Unix(1000, 0)
	if r, b := m.perSecond(at); r != 0 || b != 0 {
		t.Errorf("nothing has gone, and %v records and %v bytes a second are told", r, b)
	}
	for i := range 40 {
		m.add(at.Add(time.Duration(i)*250*time.Millisecond), 5, 100)
	}
	now := at.Add(9900 * time.Millisecond)
	if r, b := m.perSecond(now); r != 20 || b != 400 {
		t.Errorf("%v records, %v bytes a second, want 20 and 400", r, b)
	}
	if r, _ := m.perSecond(now.Add(5 * time.Second)); r != 10 {
		t.Errorf("five seconds later %v, want 10", r)
	}
	if r, _ := m.perSecond(now.Add(time.Minute)); r != 0 {
		t.Errorf("a minute later %v", r)
	}
	m.add(now.Add(time.Minute), 30, 0)
	if r, _ := m.perSecond(now.Add(time.Minute)); r != 3 {
		t.Errorf("after a pause %v, want 3", r)
	}
	m = meter{}
	m.add(at, 7, 0)
	if r, _ := m.perSecond(at); r != 7 {
		t.Errorf("in the first second %v, want 7", r)
	}
}

func TestIdleness(t *testing.T) {
	var i idleness
	at := time.Unix(5, 0)
	if was, d := i.now(at, byRate); was != "" || d != 0 {
		t.Error(was, d)
	}
	if was, d := i.now(at.Add(3*time.Second), byRate); was != byRate || d != 3*time.Second {
		t.Error(was, d)
	}
	if was, d := i.now(at.Add(4*time.Second), ""); was != byRate || d != time.Second {
		t.Error(was, d)
	}
	if was, d := i.now(at.Add(time.Hour), bySkew); was != "" || d != 0 {
		t.Error(was, d)
	}
}
