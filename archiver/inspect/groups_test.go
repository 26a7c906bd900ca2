package inspect_test

import (
	"context"
	"strings"
	"testing"

	"tapedeck.dev/tapedeck/shared/archive"
)

func TestInspectGroups(t *testing.T) {
	addr, st := filled(t)
	a := archive.Open(st, "topics")
	for i, at := range []int64{1_700_000_000_000, 1_700_000_060_000} {
		s := &archive.GroupSnapshot{ClusterID: "c", Time: at, Topics: map[string]string{"trips": "id-trips"}, Groups: []archive.GroupPositions{
			{Group: "billing", Positions: []archive.GroupPosition{{Topic: "trips", Partition: 1, Offset: int64(10 + i), LeaderEpoch: 3, Metadata: "m n"}}}}}
		if err := a.KeepGroups(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "2023-11-14T22:14:20Z billing trips 1 11 3 \"m n\""},
		{[]string{"--until", "2023-11-14T22:14:19.999Z"}, "2023-11-14T22:13:20Z billing trips 1 10 3 \"m n\""},
		{[]string{"--until", "1700000060000"}, "2023-11-14T22:14:20Z billing trips 1 11 3 \"m n\""},
	} {
		code, out, errs := run(append([]string{"inspect", "--store", addr, "--show", "groups"}, c.args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != 0 || len(lines) != 2 || strings.Join(strings.Fields(strings.Replace(lines[1], ".000Z", "Z", 1)), " ") != c.want {
			t.Errorf("%v: exit %d: %s%s", c.args, code, out, errs)
		}
	}
	if code, out, errs := run("inspect", "--store", addr, "--show", "groups", "-o", "json"); code != 0 || !strings.Contains(out, `"offset": 11`) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	for _, until := range []string{"yesterday", "-5", "1699999999999"} {
		if code, out, errs := run("inspect", "--store", addr, "--show", "groups", "--until="+until); code != 2 || out != "" || errs == "" {
			t.Errorf("%s: exit %d: %s%s", until, code, out, errs)
		}
	}
}
