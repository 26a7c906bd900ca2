package kafka

import "testing"

func TestParseMemberID(t *testing.T) {
	for in, want := range map[string]string{
		"CGMDv2:\x00\x00\x00\x01g\x00member-1\x00\x00": "member-1",
		"CGMDv2:\x00\x00\x00\x01g\x00\x00\x00":         "",
	} {
		if got, err := parseMemberID([]byte(in), "g"); err != nil || got != want {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "CGMDv1:\x00\x00\x00\x01g\x00m\x00", "CGMDv2:\x00\x00", "CGMDv2:\x00\x00\x00\x01other\x00m\x00", "CGMDv2:\x00\x00\x00\x01g\x00m"} {
		if got, err := parseMemberID([]byte(in), "g"); err == nil {
			t.Errorf("%q: %q", in, got)
		}
	}
}
