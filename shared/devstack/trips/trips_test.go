package trips

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func collect(t *testing.T, s Source) []Trip {
	t.Helper()
	var out []Trip
	for trip, err := range s {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, trip)
	}
	return out
}

func TestGenerateIsAFunctionOfSeedAndIndex(t *testing.T) {
	all := collect(t, Generate(GenerateOptions{Seed: 7, Count: 1000}))
	if again := collect(t, Generate(GenerateOptions{Seed: 7, Count: 1000})); !slices.Equal(all, again) {
		t.Fatal("a second run differs")
	}
	if tail := collect(t, Generate(GenerateOptions{Seed: 7, First: 600, Count: 400})); !slices.Equal(all[600:], tail) {
		t.Fatal("trips from the middle differ")
	}
	if other := collect(t, Generate(GenerateOptions{Seed: 8, Count: 1000})); slices.Equal(all, other) {
		t.Fatal("another seed makes the same trips")
	}
}

// The properties that the demonstration rests on: event times out of order within a bound, a given share late beyond what a
// delay of 10 s and windows of 10 s forgive, records never older than their event, whole cents, few users with most trips.
func TestGeneratedShape(t *testing.T) {
	const n = 20_000
	all := collect(t, Generate(GenerateOptions{Seed: 1, Count: n, LateShare: 0.02}))
	late, disordered, newest := 0, 0, int64(math.MinInt64)
	perUser := map[string]int{}
	for i, trip := range all {
		lag := trip.ArrivalMs - trip.PickupMs
		if lag < 0 {
			t.Fatalf("trip %d arrives %d ms before its pickup", i, -lag)
		}
		if i > 0 && trip.ArrivalMs < all[i-1].ArrivalMs {
			t.Fatalf("trip %d arrives before the one above", i)
		}
		switch {
		case lag > DefaultDisorder.Milliseconds():
			if lag < (DefaultDisorder + lateBy).Milliseconds() {
				t.Fatalf("trip %d lags %d ms, neither in order nor late", i, lag)
			}
			late++
		case trip.PickupMs < newest:
			disordered++
		}
		newest = max(newest, trip.PickupMs)
		perUser[trip.UserID]++
		if cents := trip.Price * 100; math.Abs(cents-math.Round(cents)) > 1e-6 || trip.Price <= 0 {
			t.Fatalf("trip %d costs %v", i, trip.Price)
		}
	}
	if late < n*15/1000 || late > n*25/1000 {
		t.Errorf("%d of %d trips are late, asked for 2 %%", late, n)
	}
	if disordered < n/2 {
		t.Errorf("only %d of %d event times are out of order", disordered, n)
	}
	if len(perUser) < 150 || perUser["user-0000"] < 3*n/DefaultUsers/2 {
		t.Errorf("%d users, the first takes %d trips", len(perUser), perUser["user-0000"])
	}
	for _, trip := range collect(t, Generate(GenerateOptions{Seed: 1, Count: n, LateShare: -1})) {
		if trip.ArrivalMs-trip.PickupMs > DefaultDisorder.Milliseconds() {
			t.Fatal("a late trip although none were asked for")
		}
	}
}

func TestPartitionOfIsInRange(t *testing.T) {
	for p := range int32(7) {
		if got := PartitionOf("user-0001", p+1); got < 0 || got > p {
			t.Errorf("partition %d of %d", got, p+1)
		}
	}
}

func TestAvro(t *testing.T) {
	in := Trip{UserID: "u", Price: 12.95, PickupMs: 1_553_372_469_000, Distance: 1.6, Passengers: 2, PickupZone: "a", DropoffZone: "b"}
	b, err := in.AppendAvro(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out Trip
	if rest, err := parsed.Decode(b, &out); err != nil || len(rest) != 0 || out != in {
		t.Fatalf("%+v, %d bytes left, %v", out, len(rest), err)
	}
}

const sample = `pickup,dropoff,passengers,distance,fare,tip,tolls,total,color,payment,pickup_zone,dropoff_zone,pickup_borough,dropoff_borough
2019-03-23 20:21:09,2019-03-23 20:27:24,1,1.6,7.0,2.15,0.0,12.95,yellow,credit card,Lenox Hill West,UN/Turtle Bay South,Manhattan,Manhattan
2019-03-04 16:11:55,2019-03-04 16:19:00,1,0.79,5.0,0.0,0.0,9.3,yellow,cash,,,,
2019-03-04 16:11:50,2019-03-04 16:30:00,,,5.0,0.0,0.0,,yellow,,"A, B",C,Manhattan,Manhattan
`

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trips.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadCSV(t *testing.T) {
	at := func(s string) int64 {
		v, err := time.Parse(csvTime, s)
		if err != nil {
			t.Fatal(err)
		}
		return v.UnixMilli()
	}
	lenox := Trip{UserID: "Lenox Hill West", Price: 12.95, PickupMs: at("2019-03-23 20:21:09"), Distance: 1.6, Passengers: 1,
		PickupZone: "Lenox Hill West", DropoffZone: "UN/Turtle Bay South", ArrivalMs: at("2019-03-23 20:27:24")}
	nameless := Trip{UserID: "unknown", Price: 9.3, PickupMs: at("2019-03-04 16:11:55"), Distance: 0.79, Passengers: 1,
		PickupZone: "unknown", DropoffZone: "unknown", ArrivalMs: at("2019-03-04 16:19:00")}
	empty := Trip{UserID: "A, B", PickupMs: at("2019-03-04 16:11:50"), PickupZone: "A, B", DropoffZone: "C", ArrivalMs: at("2019-03-04 16:30:00")}

	path := writeFile(t, sample)
	src, err := ReadCSV(CSVOptions{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := collect(t, src), []Trip{nameless, empty, lenox}; !slices.Equal(got, want) {
		t.Errorf("by arrival: %+v\nwant %+v", got, want)
	}
	if src, err = ReadCSV(CSVOptions{Path: path, FileOrder: true}); err != nil {
		t.Fatal(err)
	}
	// In the file's order a row does not arrive before the one above it.
	nameless.ArrivalMs, empty.ArrivalMs = lenox.ArrivalMs, lenox.ArrivalMs
	if got, want := collect(t, src), []Trip{lenox, nameless, empty}; !slices.Equal(got, want) {
		t.Errorf("as it is: %+v\nwant %+v", got, want)
	}
}

func TestReadCSVErrors(t *testing.T) {
	for name, text := range map[string]string{
		"line 3: pickup":      "pickup,total\n2019-03-23 20:21:09,1\nyesterday,1\n",
		"line 2: total":       "pickup,total\n2019-03-23 20:21:09,much\n",
		`no column "total"`:   "pickup\n2019-03-23 20:21:09\n",
		"header":              "",
		"wrong number of fie": "pickup,total\n2019-03-23 20:21:09\n",
	} {
		if _, err := ReadCSV(CSVOptions{Path: writeFile(t, text)}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error with %q, got %v", name, err)
		}
	}
}
