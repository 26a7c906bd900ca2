package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tapedeck.dev/tapedeck/replayer/job"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/schema"
)

// ErrRefused: the schemas cannot be restored as asked; trying again is of no use.
var ErrRefused = errors.New("the schemas cannot be restored")

// errTakesNoIDs: the registry says that it has an import mode, and passes ids over.
var errTakesNoIDs = errors.New("the registry takes no ids")

// maxFresh bounds the search for a free id.
const maxFresh = 40

// pass goes through the wants once, in their order: look, decide, and, where apply is set, do.
type pass struct {
	reg      *schema.Registry
	wants    []Want
	claims   []Claim
	takesIDs bool
	apply    bool
	sameIDs  bool
	ready    func(ctx context.Context, subject string) error // makes a subject take ids; nil without apply

	decided []Decision
	taken   map[int]bool // ids given in this pass
}

func (p *pass) run(ctx context.Context) ([]Decision, error) {
	p.claims, p.taken = claims(p.wants), map[int]bool{}
	for i := range p.wants {
		d, err := p.one(ctx, i)
		if err != nil {
			return nil, err
		}
		p.decided = append(p.decided, d)
		if d.To >= 0 {
			p.taken[d.To] = true
		}
	}
	return p.decided, nil
}

// draft is a Want as it is at the target, where what it refers to may have another version.
func (p *pass) draft(w *Want) schema.Draft {
	d := w.Draft
	d.References = slices.Clone(d.References)
	for i, r := range w.refs {
		d.References[i].Version = p.decided[r].ToVersion
		d.References[i].Subject = p.wants[r].Subject
	}
	return d
}

func (p *pass) one(ctx context.Context, i int) (Decision, error) {
	w := &p.wants[i]
	draft := p.draft(w)
	held, err := look(ctx, p.reg, w, draft)
	if err != nil {
		return Decision{}, err
	}
	d, err := Decide(w, held, p.takesIDs, p.claims[i], func() (int, error) { return p.fresh(ctx) })
	if err != nil {
		return Decision{}, err
	}
	if p.sameIDs && w.ID >= 0 && d.To != w.ID {
		return Decision{}, fmt.Errorf(`%w under their own ids: id %d (subject %s version %d): %s; ask for registry "restore", which changes the ids in the records`,
			ErrRefused, w.ID, w.Subject, w.Version, d.Why)
	}
	if !p.apply || d.Action == job.SchemaKept {
		return d, nil
	}
	return p.do(ctx, w, draft, d)
}

// look asks the registry for everything that Decide needs to know.
func look(ctx context.Context, reg *schema.Registry, w *Want, draft schema.Draft) (Held, error) {
	h := Held{ID: schema.Free, Slot: schema.Free}
	if w.ID >= 0 {
		held, use, err := reg.HeldID(ctx, w.ID)
		if err != nil {
			return h, err
		}
		h.ID, h.IDSame = use, use != schema.Free && held.Same(draft)
	}
	if w.Version > 0 {
		held, use, err := reg.HeldVersion(ctx, w.Subject, w.Version)
		if err != nil {
			return h, err
		}
		h.Slot, h.SlotSame = use, use != schema.Free && held.Same(draft)
	}
	var err error
	h.KnownID, h.KnownVersion, h.Known, err = reg.Lookup(ctx, w.Subject, draft)
	if err != nil {
		return h, err
	}
	// The registry's own comparison counts more than ours: it may have written the text in its way.
	if h.Known && h.KnownID == w.ID {
		h.ID, h.IDSame = schema.Live, true
	}
	return h, nil
}

// fresh finds an id above all that are wanted that the registry does not use.
func (p *pass) fresh(ctx context.Context) (int, error) {
	id := 0
	for _, w := range p.wants {
		id = max(id, w.ID)
	}
	id++
	for n, step := 0, 1; n < maxFresh; n++ {
		for p.taken[id] {
			id++
		}
		_, use, err := p.reg.HeldID(ctx, id)
		if err != nil {
			return 0, err
		}
		if use == schema.Free {
			return id, nil
		}
		id += step
		step *= 2 // a registry that is in use has many
	}
	return 0, fmt.Errorf("%w: no free id was found up to %d", ErrRefused, id)
}

func (p *pass) do(ctx context.Context, w *Want, draft schema.Draft, d Decision) (Decision, error) {
	var given int
	var err error
	if d.Action == job.SchemaImported {
		if err := p.ready(ctx, w.Subject); err != nil {
			return d, err
		}
		given, err = p.reg.Import(ctx, w.Subject, draft, d.To, d.ToVersion)
	} else {
		given, err = p.reg.RegisterDraft(ctx, w.Subject, draft)
	}
	if err != nil {
		return d, fmt.Errorf("subject %s version %d (id %d): %w", w.Subject, w.Version, w.ID, err)
	}
	switch {
	case d.Action == job.SchemaImported && given != d.To:
		return d, fmt.Errorf("%w: %d was given for %d", errTakesNoIDs, given, d.To)
	case d.To < 0:
		d.To = given
		if given == w.ID {
			d.Why = ""
		}
	}
	return p.confirm(ctx, w, draft, d)
}

// confirm reads back what was written: where it is, and that the id means it.
func (p *pass) confirm(ctx context.Context, w *Want, draft schema.Draft, d Decision) (Decision, error) {
	id, version, ok, err := p.reg.Lookup(ctx, w.Subject, draft)
	if err != nil {
		return d, err
	}
	if ok {
		d.ToVersion = version
	}
	if ok && id == d.To {
		return d, nil
	}
	held, use, err := p.reg.HeldID(ctx, d.To)
	if err != nil {
		return d, err
	}
	if use == schema.Free || !held.Same(draft) {
		return d, fmt.Errorf("%w: subject %s version %d was registered, and id %d of the registry is not it", ErrRefused, w.Subject, w.Version, d.To)
	}
	return d, nil
}

// planOf is what is shown and kept of the decisions.
func planOf(url string, takesIDs bool, wants []Want, decided []Decision) *job.RegistryPlan {
	p := &job.RegistryPlan{URL: url, Import: takesIDs, Schemas: make([]job.RegistrySchema, len(wants))}
	for i, w := range wants {
		d := decided[i]
		p.Schemas[i] = job.RegistrySchema{ID: w.ID, GUID: w.GUID, Fingerprint: w.Fingerprint, Type: w.Draft.Type, Subject: w.Subject, Version: w.Version,
			Action: d.Action, To: d.To, ToVersion: d.ToVersion, Why: d.Why}
		if w.ID < 0 || d.To == w.ID {
			continue
		}
		if p.Rewritten == nil {
			p.Rewritten = map[string][]job.IDChange{}
		}
		for _, t := range w.Topics {
			p.Rewritten[t] = append(p.Rewritten[t], job.IDChange{From: w.ID, To: d.To})
		}
	}
	if len(p.Rewritten) > 0 {
		p.Notes = append(p.Notes, "records of the topics under rewritten get other ids than in the archive, so their bytes differ from it; first and last record and count are as in the archive")
	}
	return p
}

// Restorer restores the schemas of a job.
type Restorer struct {
	Registry *schema.Registry
	URL      string
	Modes    Modes                  // of the registry's subjects before the job changed them
	Levels   *archive.LevelSnapshot // compatibility levels as archived; nil: none
	SameIDs  bool
}

// Plan says what Restore would do, and changes nothing. Errors: ErrRefused, schema.ErrRefused, and those that may pass.
func (r *Restorer) Plan(ctx context.Context, wants []Want) (*job.RegistryPlan, error) {
	takesIDs, err := r.takesIDs(ctx, wants)
	if err != nil {
		return nil, err
	}
	decided, err := (&pass{reg: r.Registry, wants: wants, takesIDs: takesIDs, sameIDs: r.SameIDs}).run(ctx)
	if err != nil {
		return nil, err
	}
	p := planOf(r.URL, takesIDs, wants, decided)
	if err := r.addLevels(ctx, wants, p, false); err != nil {
		return nil, err
	}
	return p, nil
}

func (r *Restorer) takesIDs(ctx context.Context, wants []Want) (bool, error) {
	if len(wants) == 0 {
		return false, nil
	}
	_, _, err := r.Registry.Modes(ctx, wants[0].Subject)
	if errors.Is(err, schema.ErrNoImport) {
		return false, nil
	}
	return err == nil, err
}

// Restore registers what the registry lacks and returns what became of each schema. It may be repeated: what was there, or has been restored before, is
// left as it is, so that the same registry comes out. Compatibility levels come last, when the modes are back. Modes that it changes are put back before it returns, and, where it cannot, by PutBack. Errors as
// those of Plan.
func (r *Restorer) Restore(ctx context.Context, wants []Want) (*job.RegistryPlan, error) {
	takesIDs, err := r.takesIDs(ctx, wants)
	if err != nil {
		return nil, err
	}
	p, err := r.restore(ctx, wants, takesIDs)
	if takesIDs && (errors.Is(err, errTakesNoIDs) || errors.Is(err, schema.ErrNoImport)) {
		// What it was given under another id is found again by its text.
		p, err = r.restore(ctx, wants, false)
	}
	if err != nil {
		return nil, err
	}
	// Last: a level of the archive must not refuse an older version, and a subject in IMPORT is not checked.
	if err := r.addLevels(ctx, wants, p, true); err != nil {
		return nil, err
	}
	return p, nil
}

func (r *Restorer) restore(ctx context.Context, wants []Want, takesIDs bool) (_ *job.RegistryPlan, err error) {
	// Everything is decided before anything is changed: what is refused leaves the registry as it was.
	dry, err := (&pass{reg: r.Registry, wants: wants, takesIDs: takesIDs, sameIDs: r.SameIDs}).run(ctx)
	if err != nil {
		return nil, err
	}
	var subjects []string
	for i, d := range dry {
		if d.Action == job.SchemaImported && !slices.Contains(subjects, wants[i].Subject) {
			subjects = append(subjects, wants[i].Subject)
		}
	}
	ready, err := r.keepModes(ctx, subjects)
	if err != nil {
		return nil, err
	}
	defer func() {
		if back := r.PutBack(ctx); back != nil {
			err = errors.Join(err, back)
		}
	}()
	decided, err := (&pass{reg: r.Registry, wants: wants, takesIDs: takesIDs, sameIDs: r.SameIDs, apply: true, ready: ready}).run(ctx)
	if err != nil {
		return nil, err
	}
	return planOf(r.URL, takesIDs, wants, decided), nil
}

// Verify reports schemas and compatibility levels of a restored plan that the registry no longer has; notes are of levels that somebody has changed since.
func (r *Restorer) Verify(ctx context.Context, p *job.RegistryPlan) (notes []string, err error) {
	var gone []string
	for _, s := range p.Schemas {
		if s.To < 0 {
			return nil, fmt.Errorf("%w: the stored plan was not carried out", ErrRefused)
		}
		_, use, err := r.Registry.HeldID(ctx, s.To)
		if err != nil {
			return nil, err
		}
		if use == schema.Free {
			gone = append(gone, fmt.Sprintf("id %d (subject %s)", s.To, s.Subject))
		}
	}
	if len(gone) > 0 {
		return nil, fmt.Errorf("%w: the registry no longer holds %s, which the job restored", ErrRefused, strings.Join(gone, ", "))
	}
	return r.verifyLevels(ctx, p)
}
