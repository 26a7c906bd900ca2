package engine

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

type windowKey struct {
	end int64
	key string
}

// counts are aggregates of which the sum over parts is the whole's.
type counts struct{ n, total int64 }

func (c counts) plus(o counts) counts { return counts{c.n + o.n, c.total + o.total} }

func resultOf(t testing.TB, o Output) (windowKey, counts) {
	t.Helper()
	var v struct {
		End   int64 `json:"window_end"`
		K     string
		N     int64
		Total int64
	}
	if err := json.Unmarshal(o.Record.Value, &v); err != nil {
		t.Fatal(err)
	}
	return windowKey{v.End, v.K}, counts{v.N, v.Total}
}

func recordOf(t testing.TB, o Output) (windowKey, counts) {
	t.Helper()
	var v struct {
		K string
		V int64
	}
	if err := json.Unmarshal(o.Record.Value, &v); err != nil {
		t.Fatal(err)
	}
	end, err := strconv.ParseInt(header(o, HeaderWindowEnd), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return windowKey{end, v.K}, counts{1, v.V}
}

func withDelay(text string, old, new int64) string {
	return strings.Replace(text, fmt.Sprintf(" delay: %dms", old), fmt.Sprintf(" delay: %dms", new), 1)
}
