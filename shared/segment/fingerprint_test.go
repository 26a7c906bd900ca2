package segment

import "testing"

func TestFingerprint(t *testing.T) {
	a := Schema{ID: 7, Type: "AVRO", Text: "x", Subject: "s", Version: 1}
	same := Schema{ID: 8, Type: "AVRO", Text: "x"}
	if f := a.Fingerprint(); f != same.Fingerprint() || len(f) != 32 {
		t.Errorf("%s, %s", f, same.Fingerprint())
	}
	for _, b := range []Schema{{Type: "JSON", Text: "x"}, {Type: "AVRO", Text: "y"}, {Type: "AVROx"}, {Type: "AVRO", Text: "x", References: []Reference{{Name: "r"}}},
		{Type: "AVRO", Text: "x", References: []Reference{{Name: "r", Text: "t"}}}} {
		if a.Fingerprint() == b.Fingerprint() {
			t.Errorf("%+v", b)
		}
	}
}
