package trips

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"time"
)

// CSVOptions describe a file of trips with a header row that has at least the columns pickup and total; dropoff, passengers,
// distance, pickup_zone and dropoff_zone are used where they are. Times are like "2019-03-23 20:21:09" and taken as UTC. This
// is the shape of the public samples of New York's taxi trips.
type CSVOptions struct {
	Path string
	// FileOrder keeps the rows as they are, each arriving not before the one above it. Otherwise they are sorted by arrival,
	// which is the dropoff: a device tells of a trip when it has ended.
	FileOrder bool
}

const csvTime = "2006-01-02 15:04:05"

// ReadCSV reads the whole file. The price is the total, the user is the pickup zone ("unknown" where empty), the event time is the
// pickup. An empty or missing number is 0; a row without a pickup, or with a cell that cannot be read, is an error.
func ReadCSV(o CSVOptions) (Source, error) {
	f, err := os.Open(o.Path)
	if err != nil {
		return nil, fmt.Errorf("read trips: %w", err)
	}
	defer func() { _ = f.Close() }()
	all, err := parseCSV(f)
	if err != nil {
		return nil, fmt.Errorf("read trips of %s: %w", o.Path, err)
	}
	if !o.FileOrder {
		slices.SortStableFunc(all, func(a, b Trip) int { return cmp.Compare(a.ArrivalMs, b.ArrivalMs) })
	}
	last := int64(math.MinInt64)
	for i := range all {
		last = max(last, all[i].ArrivalMs)
		all[i].ArrivalMs = last
	}
	return func(yield func(Trip, error) bool) {
		for _, t := range all {
			if !yield(t, nil) {
				return
			}
		}
	}, nil
}

func parseCSV(r io.Reader) ([]Trip, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	col := map[string]int{}
	for i, name := range header {
		col[name] = i
	}
	for _, name := range []string{"pickup", "total"} {
		if _, ok := col[name]; !ok {
			return nil, fmt.Errorf("no column %q", name)
		}
	}
	var all []Trip
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		t, err := parseRow(func(name string) string {
			if i, ok := col[name]; ok {
				return row[i]
			}
			return ""
		})
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		all = append(all, t)
	}
}

func parseRow(cell func(string) string) (t Trip, err error) {
	number := func(name string) float64 {
		s := cell(name)
		if s == "" {
			return 0
		}
		v, perr := strconv.ParseFloat(s, 64)
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, perr))
		}
		return v
	}
	at := func(name string) int64 {
		v, perr := time.Parse(csvTime, cell(name))
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, perr))
		}
		return v.UnixMilli()
	}
	or := func(s, other string) string {
		if s == "" {
			return other
		}
		return s
	}
	t = Trip{
		UserID:      or(cell("pickup_zone"), "unknown"),
		Price:       number("total"),
		PickupMs:    at("pickup"),
		Distance:    number("distance"),
		Passengers:  int32(number("passengers")),
		PickupZone:  or(cell("pickup_zone"), "unknown"),
		DropoffZone: or(cell("dropoff_zone"), "unknown"),
	}
	t.ArrivalMs = t.PickupMs
	if cell("dropoff") != "" {
		t.ArrivalMs = max(t.ArrivalMs, at("dropoff"))
	}
	return t, err
}
