// Package registry brings the writer schemas of restored records back into a schema registry: under their own ids where these are free, else under
// others, which it then writes into the records.
package registry

import (
	"cmp"
	"fmt"
	"slices"

	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/segment"
)

// Want is a schema that the target's registry has to hold.
type Want struct {
	ID          int    // in the records; −1: none
	GUID        string // in the records, where they name it so
	Fingerprint string // segment.Schema's
	Subject     string
	Version     int          // 0: not known
	Draft       schema.Draft // its references as in the archive
	Segments    int          // that name it
	Topics      []string     // that name it, ascending

	refs []int // index of the Want of each of Draft.References
}

// noSubject is the subject of a schema of which the archive does not know one: that of its own, so that no other schema's compatibility is asked for.
func noSubject(fingerprint string) string { return "tapedeck-restored-" + fingerprint }

// wants collects what segments name.
type wants struct {
	named map[namedKey]*named
}

type namedKey struct {
	id          int
	guid        string
	fingerprint string
}

type named struct {
	schema   segment.Schema
	segments int
	topics   map[string]bool
}

func newWants() *wants { return &wants{named: map[namedKey]*named{}} }

// add notes the schemas of one segment of a topic.
func (w *wants) add(topic string, schemas []segment.Schema) {
	for _, s := range schemas {
		k := namedKey{s.ID, s.GUID, s.Fingerprint()}
		n := w.named[k]
		if n == nil {
			n = &named{schema: s, topics: map[string]bool{}}
			w.named[k] = n
		}
		// The registry told the first of its subjects by name; which that was may have changed with time.
		if s.Subject != "" && (n.schema.Subject == "" || cmp.Or(cmp.Compare(s.Subject, n.schema.Subject), cmp.Compare(s.Version, n.schema.Version)) < 0) {
			n.schema.Subject, n.schema.Version = s.Subject, s.Version
		}
		n.segments++
		n.topics[topic] = true
	}
}

// list returns everything that is wanted, each after what it refers to, in an order that depends on what was added alone.
func (w *wants) list() ([]Want, error) {
	keys := make([]namedKey, 0, len(w.named))
	for k := range w.named {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b namedKey) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.guid, b.guid), cmp.Compare(a.fingerprint, b.fingerprint))
	})
	g := graph{byPlace: map[place][]int{}, byText: map[string]int{}}
	// Those with an id first, so that a reference or a GUID of the same text finds them.
	for _, ids := range []bool{true, false} {
		for _, k := range keys {
			if n := w.named[k]; (k.id >= 0) == ids {
				g.main(n)
			}
		}
	}
	return g.sorted()
}

// place is where a registry keeps a schema.
type place struct {
	subject string
	version int
}

type graph struct {
	wants   []Want
	byPlace map[place][]int
	byText  map[string]int // fingerprint → a Want with an id
}

func (g *graph) main(n *named) {
	s := n.schema
	fp := s.Fingerprint()
	topics := make([]string, 0, len(n.topics))
	for t := range n.topics {
		topics = append(topics, t)
	}
	slices.Sort(topics)
	if at, ok := g.byText[fp]; ok && s.ID < 0 {
		// The GUID follows from the text: whoever registers the text registers the GUID.
		g.wants[at].Topics = append(g.wants[at].Topics, topics...)
		slices.Sort(g.wants[at].Topics)
		g.wants[at].Topics = slices.Compact(g.wants[at].Topics)
		return
	}
	w := Want{ID: s.ID, GUID: s.GUID, Fingerprint: fp, Subject: s.Subject, Version: s.Version, Segments: n.segments, Topics: topics,
		Draft: schema.Draft{Type: s.Type, Text: s.Text}}
	if w.Subject == "" {
		w.Subject, w.Version = noSubject(fp), 1
	}
	for _, r := range s.References {
		if !r.Indirect {
			w.Draft.References = append(w.Draft.References, segment.Reference{Name: r.Name, Subject: r.Subject, Version: r.Version})
		}
	}
	for i := range w.Draft.References {
		w.refs = append(w.refs, g.reference(s.Type, w.Draft.References[i], s.References))
	}
	g.byText[fp] = g.put(w)
}

func (g *graph) put(w Want) int {
	g.wants = append(g.wants, w)
	at := len(g.wants) - 1
	g.byPlace[place{w.Subject, w.Version}] = append(g.byPlace[place{w.Subject, w.Version}], at)
	return at
}

// reference returns the Want of what a schema refers to, whose text is in the schema's list; −1: it is not there, which sorted reports.
func (g *graph) reference(typ string, r segment.Reference, all []segment.Reference) int {
	i := slices.IndexFunc(all, func(q segment.Reference) bool {
		return q.Name == r.Name && q.Subject == r.Subject && q.Version == r.Version && q.Text != ""
	})
	if i < 0 {
		return -1
	}
	found := all[i]
	draft := schema.Draft{Type: typ, Text: found.Text}
	for _, own := range found.References {
		draft.References = append(draft.References, segment.Reference{Name: own.Name, Subject: own.Subject, Version: own.Version})
	}
	for _, at := range g.byPlace[place{r.Subject, r.Version}] {
		if g.wants[at].Draft.Same(draft) {
			return at
		}
	}
	s := segment.Schema{Type: typ, Text: found.Text, References: found.References}
	w := Want{ID: -1, Fingerprint: s.Fingerprint(), Subject: r.Subject, Version: r.Version, Draft: draft}
	for _, own := range draft.References {
		// What an indirect reference needs stands before it in the list, so this ends.
		w.refs = append(w.refs, g.reference(typ, own, all[:i]))
	}
	return g.put(w)
}

// sorted brings each Want behind those that it refers to, and changes the indexes accordingly.
func (g *graph) sorted() ([]Want, error) {
	order := make([]int, 0, len(g.wants))
	at := make([]int, len(g.wants)) // 0: not seen, −1: being visited, else place in order + 1
	var visit func(i int) error
	visit = func(i int) error {
		switch {
		case at[i] > 0:
			return nil
		case at[i] < 0:
			return fmt.Errorf("the schema of subject %s version %d refers to itself", g.wants[i].Subject, g.wants[i].Version)
		}
		at[i] = -1
		for j, r := range g.wants[i].refs {
			if r < 0 {
				ref := g.wants[i].Draft.References[j]
				return fmt.Errorf("the schema of subject %s version %d refers to %s (subject %s version %d), which the archive does not hold", g.wants[i].Subject,
					g.wants[i].Version, ref.Name, ref.Subject, ref.Version)
			}
			if err := visit(r); err != nil {
				return err
			}
		}
		order = append(order, i)
		at[i] = len(order)
		return nil
	}
	for i := range g.wants {
		if err := visit(i); err != nil {
			return nil, err
		}
	}
	out := make([]Want, len(order))
	for k, i := range order {
		out[k] = g.wants[i]
		out[k].refs = make([]int, len(g.wants[i].refs))
		for j, r := range g.wants[i].refs {
			out[k].refs[j] = at[r] - 1
		}
	}
	return out, nil
}
