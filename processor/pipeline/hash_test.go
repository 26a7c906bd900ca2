package pipeline

import (
	"strings"
	"testing"
)

// How the file is written does not matter.
func TestHashIgnoresFormatting(t *testing.T) {
	want := parse(t, fares).Hash
	if len(want) != 64 {
		t.Fatalf("hash %q", want)
	}
	for _, c := range []struct{ old, new string }{
		{"keyed: merged\n", ""},
		{"keyed: merged\n", "# a comment\nkeyed: merged   # another\n\n"},
		{"delay: 10s", "delay: 10000ms"},
		{"maxFuture: 1h", "maxFuture: 60m"},
		{"    maxFuture: 1h\n", "    maxFuture: 1h\n    idleness: {after: 30s}\n"}, // a clock's business: it reaches outputs through the decision log alone
		{"where: price > 0 && paid", `where: "price > 0 && paid"`},
		{"where: price > 0 && paid", "where: >\n      price > 0\n      && paid"},
		{"window: {tumbling: {size: 10s}}", "window:\n  tumbling:\n    size: 10s"},
		{", format: json}", "}"},
		{"[user_id, {area", "[{user_id: user_id}, {area"},
		{"sum(price)", "sum( price )"},
		{`{"name": "fee", "type": "float"}`, `{  "type" :"float","name":"fee"}`},
	} {
		text := strings.Replace(fares, c.old, c.new, 1)
		if got := parse(t, text).Hash; got != want {
			t.Errorf("%q for %q changes the hash", c.new, c.old)
		}
	}
	// The order of settings.
	out := "output: {topic: fares-out, partitions: 4, format: json}\n"
	if parse(t, out+strings.Replace(fares, out, "", 1)).Hash != want {
		t.Error("the order of settings changes the hash")
	}
}

// Everything that reaches an output byte does.
func TestHashSeesWhatMatters(t *testing.T) {
	seen := map[string]string{parse(t, fares).Hash: "the original"}
	for _, c := range []struct{ old, new string }{
		{"name: fares", "name: faros"},
		{"topic: trips", "topic: trips2"},
		{"delay: 10s", "delay: 11s"},
		{"    maxFuture: 1h\n", ""},
		{"maxFuture: 1h", "maxFuture: 0s"},
		{"maxFuture: 1h", "maxFuture: 2h"},
		{"price > 0 &&", "price >= 0 &&"},
		{"    where: price > 0 && paid\n", ""},
		{"fee * 0.5", "fee * 0.25"},
		{"unit: ms", "unit: us"},
		{"{field: pickup_ms", "{field: user_id"},
		{"{field: pickup_ms, unit: ms}", "record"},
		{`"default": null`, `"default": null, "aliases": ["cost"]`},
		{"[user_id, {area: upper(zone)}]", "[{area: upper(zone)}, user_id]"},
		{"{area: upper", "{district: upper"},
		{"upper(zone)", "lower(zone)"},
		{"size: 10s", "size: 20s"},
		{"sum(price)", "min(price)"},
		{"sum(price)", "sum(fee)"},
		{"  sum_price:", "  total:"},
		{"  trips: count()\n  priced: count(price)\n", "  priced: count(price)\n  trips: count()\n"},
		{"topic: fares-out", "topic: fares-out2"},
		{"partitions: 4", "partitions: 5"},
	} {
		text := strings.Replace(fares, c.old, c.new, 1)
		if text == fares {
			t.Fatalf("%q is not in the example", c.old)
		}
		h := parse(t, text).Hash
		if other, ok := seen[h]; ok {
			t.Errorf("%q for %q has the hash of %s", c.new, c.old, other)
		}
		seen[h] = c.new
	}
	keyed := strings.NewReplacer("keyed: merged", "keyed: partition", "partitions: 4, ", "").Replace(fares)
	if _, ok := seen[parse(t, keyed).Hash]; ok {
		t.Error("keyed does not reach the hash")
	}
}

// A change of the canonical form would make every running pipeline refuse its own decision log.
func TestHashIsStable(t *testing.T) {
	const want = "42fdb59e380a86da17e16a5a52cd22f0d5a44d364155fff9477039cd4385b74c"
	if got := parse(t, fares).Hash; got != want {
		t.Errorf("the hash of the example is %s, was %s", got, want)
	}
}
