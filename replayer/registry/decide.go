package registry

import (
	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/schema"
)

// Held is what the registry holds where a Want would go.
type Held struct {
	ID       schema.Use // use of its id; Free where it has none
	IDSame   bool       // for this very schema
	Slot     schema.Use // use of its version of its subject
	SlotSame bool
	// Known says that its subject holds it, as version KnownVersion, and under which id.
	Known                 bool
	KnownID, KnownVersion int
}

// Claim says what of the archive's meanings a Want may take: where the archive knows an id, or a version of a subject, in two meanings, one of them can keep it.
type Claim struct {
	ID, Slot bool
}

// Decision is what is done with a Want.
type Decision struct {
	Action    string // of job.RegistrySchema
	To        int    // −1: what the registry gives
	ToVersion int    // 0: the next
	Why       string // To is not the Want's id
}

// Decide is the whole rule: a schema that is there stays as it is; one whose id is free (or held for it by a soft deletion) gets it where the registry takes
// ids; any other gets the id that its subject has it under, else a fresh one, else what the registry gives. fresh returns an id that is free.
func Decide(w *Want, h Held, takesIDs bool, c Claim, fresh func() (int, error)) (Decision, error) {
	version := 0
	if c.Slot && (h.Slot == schema.Free || h.SlotSame) {
		version = w.Version
	}
	known := Decision{Action: job.SchemaKept, To: h.KnownID, ToVersion: h.KnownVersion}
	switch {
	case w.ID >= 0 && h.ID == schema.Live && h.IDSame && h.Known:
		known.To = w.ID
		return known, nil
	case w.ID >= 0 && h.ID == schema.Live && h.IDSame && takesIDs: // its subject lacks it
		return Decision{Action: job.SchemaImported, To: w.ID, ToVersion: version}, nil
	case w.ID >= 0 && h.ID == schema.Live && h.IDSame:
		return Decision{Action: job.SchemaRegistered, To: w.ID}, nil
	case w.ID >= 0 && takesIDs && c.ID && (h.ID == schema.Free || h.ID == schema.Deleted && h.IDSame):
		return Decision{Action: job.SchemaImported, To: w.ID, ToVersion: version}, nil
	}
	d := Decision{Why: why(w, h, takesIDs, c)}
	switch {
	case h.Known:
		why := d.Why
		d = known
		d.Why = why
	case takesIDs:
		id, err := fresh()
		if err != nil {
			return Decision{}, err
		}
		d.Action, d.To, d.ToVersion = job.SchemaImported, id, version
	default:
		d.Action, d.To = job.SchemaRegistered, -1
	}
	if d.To == w.ID && w.ID >= 0 {
		d.Why = ""
	}
	return d, nil
}

// why says why a Want does not get its id.
func why(w *Want, h Held, takesIDs bool, c Claim) string {
	switch {
	case w.ID < 0:
		return ""
	case h.ID == schema.Live:
		return "at the registry the id is another schema's"
	case h.ID == schema.Deleted && !h.IDSame:
		return "at the registry the id is that of another schema, which was softly deleted"
	case !takesIDs:
		return "the registry has no import mode and gives ids itself"
	case !c.ID:
		return "the archive knows another schema of this id, which more segments name"
	}
	return ""
}

// claims decides, for each id and each version that several Wants ask for, which one may have it: the one that the most segments name (fewer records
// change), then the first.
func claims(wants []Want) []Claim {
	ids, slots := map[int]int{}, map[place]int{}
	better := func(i, j int) bool { return wants[i].Segments > wants[j].Segments }
	for i, w := range wants {
		if j, ok := ids[w.ID]; w.ID >= 0 && (!ok || better(i, j)) {
			ids[w.ID] = i
		}
		p := place{w.Subject, w.Version}
		if j, ok := slots[p]; w.Version > 0 && (!ok || better(i, j)) {
			slots[p] = i
		}
	}
	out := make([]Claim, len(wants))
	for i, w := range wants {
		slot, ok := slots[place{w.Subject, w.Version}]
		id, hasID := ids[w.ID]
		out[i] = Claim{ID: hasID && w.ID >= 0 && id == i, Slot: ok && slot == i}
	}
	return out
}
