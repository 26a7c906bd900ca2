package archive

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tapedeck.dev/tapedeck/shared/record"
	"tapedeck.dev/tapedeck/shared/segment"
	"tapedeck.dev/tapedeck/shared/store"
)

// Schemas are kept in the segments that need them, and beside them in two kinds of objects:
//
//	_tapedeck/schemas/ids/<id, 10 digits>/<fingerprint>     every text that an id has had, or
//	_tapedeck/schemas/guids/<guid>/<fingerprint>            the one that a GUID has
//	_tapedeck/schemas/ranges/<topic>/<p>/<from>+<until>+<hash>
//
// The last holds schemas that the segments of a partition that start in [from, until) were written without, found afterwards. All are
// created, never changed; the same content has the same name.

const schemasDir = dir + "schemas/"

// ErrNoSchema: neither segment, archive nor registry holds the schema.
var ErrNoSchema = errors.New("no such schema")

// ErrTwoSchemas: the archive holds more than one text of an id, and none for the segment that is read.
var ErrTwoSchemas = errors.New("the schema id has had more than one meaning")

// schemaDir is the folder of the texts of an id, or, where it is not "", of a GUID.
func schemaDir(id int, guid string) string {
	if guid != "" {
		return fmt.Sprintf("%sguids/%s/", schemasDir, guid)
	}
	return fmt.Sprintf("%sids/%010d/", schemasDir, id)
}

// SchemaKey is the name of the object that holds s.
func SchemaKey(s segment.Schema) string { return schemaDir(s.ID, s.GUID) + s.Fingerprint() }

func rangesPrefix(tp record.TopicPartition) string {
	return fmt.Sprintf("%sranges/%s/%d/", schemasDir, tp.Topic, tp.Partition)
}

// schemaRange is the name of an object of schemas that segments lacked.
type schemaRange struct {
	From, Until int64  // starts of segments, [From, Until)
	Hash        string // of the content: 32 hexadecimal digits
}

func formatSchemaRange(r schemaRange) string {
	return fmt.Sprintf("%020d+%020d+%s", r.From, r.Until, r.Hash)
}

func parseSchemaRange(name string) (schemaRange, bool) {
	from, rest, _ := strings.Cut(name, "+")
	until, hash, _ := strings.Cut(rest, "+")
	r := schemaRange{Hash: hash}
	var err1, err2 error
	r.From, err1 = strconv.ParseInt(from, 10, 64)
	r.Until, err2 = strconv.ParseInt(until, 10, 64)
	ok := err1 == nil && err2 == nil && r.From >= 0 && r.Until > r.From && len(hash) == 32 && strings.Trim(hash, "0123456789abcdef") == "" &&
		formatSchemaRange(r) == name
	return r, ok
}

// create creates an object whose name decides its content: that it exists is success.
func (a *Archive) create(ctx context.Context, key string, data []byte) error {
	if err := a.st.Create(ctx, key, data); err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("create %s: %w", key, err)
	}
	return nil
}

// KeepSchema records that s is, or was, the meaning of its id or GUID: one create. It may be repeated. Errors: the store's.
func (a *Archive) KeepSchema(ctx context.Context, s segment.Schema) error {
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("create %s: %w", SchemaKey(s), err)
	}
	return a.create(ctx, SchemaKey(s), data)
}

// KeepSchemas records schemas for the segments of the chain tp that start in [from, until) and were written without them: one create. It may be
// repeated. Errors: the store's.
func (a *Archive) KeepSchemas(ctx context.Context, tp record.TopicPartition, from, until int64, schemas []segment.Schema) error {
	if from < 0 || until <= from {
		return fmt.Errorf("keep schemas of %s: [%d, %d) is no range of offsets", tp, from, until)
	}
	schemas = slices.SortedFunc(slices.Values(schemas), func(x, y segment.Schema) int {
		return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.GUID, y.GUID))
	})
	data, err := json.Marshal(schemas)
	if err != nil {
		return fmt.Errorf("keep schemas of %s: %w", tp, err)
	}
	return a.create(ctx, rangesPrefix(tp)+formatSchemaRange(schemaRange{from, until, contentHash(data)}), data)
}

// SchemaSource says where a schema was found.
type SchemaSource string

// Where a schema may be found, in the order in which it is looked for.
const (
	FromSegment  SchemaSource = "segment"
	FromArchive  SchemaSource = "archive"
	FromRegistry SchemaSource = "registry"
)

// Registry answers for an id, or, where guid is not "", for a GUID. Its error for what it does not know is of no concern here.
type Registry func(ctx context.Context, id int, guid string) (segment.Schema, error)

// SchemaFinder finds the writer schemas of archived records, as far as the segments do not tell themselves. What it has read it keeps. Not safe
// for concurrent use.
type SchemaFinder struct {
	a        *Archive
	registry Registry
	ranges   map[record.TopicPartition][]keptRange
	texts    map[string][]segment.Schema // by schemaDir
	folders  map[string]bool             // the schemaDirs that there are; nil: not looked yet
}

type keptRange struct {
	schemaRange
	schemas []segment.Schema
}

// NewSchemaFinder makes a SchemaFinder; registry may be nil.
func (a *Archive) NewSchemaFinder(registry Registry) *SchemaFinder {
	return &SchemaFinder{a: a, registry: registry, ranges: map[record.TopicPartition][]keptRange{}, texts: map[string][]segment.Schema{}}
}

// Find returns the writer schema that the records of the segment h, which is in the chain tp (its topic as in the segment's name: two incarnations of a topic are
// two chains), name by id (by guid, where it is not ""): from the segment; else as Kept says;
// else from the registry. Errors: ErrNoSchema, ErrTwoSchemas, the store's, and the registry's.
func (f *SchemaFinder) Find(ctx context.Context, tp record.TopicPartition, h *segment.Header, id int, guid string) (segment.Schema, SchemaSource, error) {
	if guid != "" {
		id = -1
	}
	if i := slices.IndexFunc(h.Schemas, named(id, guid)); i >= 0 {
		return h.Schemas[i], FromSegment, nil
	}
	s, err := f.Kept(ctx, tp, h, id, guid)
	switch {
	case err == nil:
		return s, FromArchive, nil
	case !errors.Is(err, ErrNoSchema) || f.registry == nil:
		return segment.Schema{}, "", err
	}
	s, asked := f.registry(ctx, id, guid)
	if asked != nil {
		return segment.Schema{}, "", fmt.Errorf("%w: %w", err, asked)
	}
	return s, FromRegistry, nil
}

func named(id int, guid string) func(segment.Schema) bool {
	return func(s segment.Schema) bool { return s.ID == id && s.GUID == guid }
}

// Kept returns what the archive holds beside the segment h of the chain tp for a schema that the segment lacks: what was found for this segment afterwards; else,
// where the archive knows one text of the id, that. Store calls: for the first of a partition one LIST and a GET per object; for the first of all a listing of
// the folders; for the first of an id that has one, one LIST and a GET per text. So ids that are none, in values that begin like the wire format by accident,
// cost nothing. Errors: ErrNoSchema, ErrTwoSchemas, the store's.
func (f *SchemaFinder) Kept(ctx context.Context, tp record.TopicPartition, h *segment.Header, id int, guid string) (segment.Schema, error) {
	what := fmt.Sprintf("schema id %d of %s from %d", id, h.TP(), h.Start)
	if guid != "" {
		id = -1
		what = fmt.Sprintf("schema guid %s of %s from %d", guid, h.TP(), h.Start)
	}
	ranges, err := f.rangesOf(ctx, tp)
	if err != nil {
		return segment.Schema{}, fmt.Errorf("find %s: %w", what, err)
	}
	for _, r := range ranges {
		if h.Start < r.From || h.Start >= r.Until {
			continue
		}
		if i := slices.IndexFunc(r.schemas, named(id, guid)); i >= 0 {
			return r.schemas[i], nil
		}
	}
	texts, err := f.textsOf(ctx, id, guid)
	switch {
	case err != nil:
		return segment.Schema{}, fmt.Errorf("find %s: %w", what, err)
	case len(texts) == 0:
		return segment.Schema{}, fmt.Errorf("find %s: %w", what, ErrNoSchema)
	case len(texts) > 1:
		return segment.Schema{}, fmt.Errorf("find %s: %w: %d texts in %s, and none for this segment", what, ErrTwoSchemas, len(texts), schemaDir(id, guid))
	}
	return texts[0], nil
}

func (f *SchemaFinder) rangesOf(ctx context.Context, tp record.TopicPartition) ([]keptRange, error) {
	if r, ok := f.ranges[tp]; ok {
		return r, nil
	}
	kept := []keptRange{}
	err := eachObject(ctx, f.a.st, rangesPrefix(tp), func(o store.Object) error {
		name, ok := parseSchemaRange(strings.TrimPrefix(o.Key, rangesPrefix(tp)))
		if !ok {
			return fmt.Errorf("%w: %s is not the name of kept schemas", ErrForeign, o.Key)
		}
		var schemas []segment.Schema
		if err := f.a.getJSON(ctx, o.Key, &schemas); err != nil {
			return err
		}
		kept = append(kept, keptRange{name, schemas})
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.ranges[tp] = kept
	return kept, nil
}

func (f *SchemaFinder) textsOf(ctx context.Context, id int, guid string) ([]segment.Schema, error) {
	folder := schemaDir(id, guid)
	if t, ok := f.texts[folder]; ok {
		return t, nil
	}
	if err := f.lookForFolders(ctx); err != nil {
		return nil, err
	}
	if !f.folders[folder] {
		return nil, nil
	}
	texts := []segment.Schema{}
	err := eachObject(ctx, f.a.st, folder, func(o store.Object) error {
		var s segment.Schema
		if err := f.a.getJSON(ctx, o.Key, &s); err != nil {
			return err
		}
		if o.Key != SchemaKey(s) {
			return fmt.Errorf("%w: %s does not hold the schema of its name", ErrForeign, o.Key)
		}
		texts = append(texts, s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	f.texts[folder] = texts
	return texts, nil
}

func (f *SchemaFinder) lookForFolders(ctx context.Context) error {
	if f.folders != nil {
		return nil
	}
	folders := map[string]bool{}
	for _, kind := range []string{schemasDir + "ids/", schemasDir + "guids/"} {
		names, err := f.a.st.ListDirs(ctx, kind)
		if err != nil {
			return fmt.Errorf("list %s: %w", kind, err)
		}
		for _, name := range names {
			folders[kind+name+"/"] = true
		}
	}
	f.folders = folders
	return nil
}
