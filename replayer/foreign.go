package replayer

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tapedeck.dev/tapedeck/replayer/connect"
	"tapedeck.dev/tapedeck/shared/archive"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/service"
	"tapedeck.dev/tapedeck/shared/store"
	"tapedeck.dev/tapedeck/shared/store/storeurl"
)

// Values of store.layout.
const (
	layoutTapedeck = "tapedeck"
	layoutConnect  = "connect"
)

// foreignKeys are the settings of archives that others wrote.
func foreignKeys() []service.Key {
	return append(service.RegistryKeys(),
		service.Key{Name: "schema.registry.url", Kind: service.String, Doc: "schema registry (Confluent's API) of a foreign archive: where records get their schema ids from; empty: none"},
		service.Key{Name: "store.layout", Kind: service.String, Default: layoutTapedeck, OneOf: []string{layoutTapedeck, layoutConnect},
			Doc: "who wrote the archive: tapedeck, or connect for Confluent's S3 sink connector with AvroFormat (docs/foreign-archives.md)"},
		service.Key{Name: "jobs.store", Kind: service.String,
			Doc: "where jobs are kept, an address as of store; empty: in store. Required with store.layout connect: nothing is written into another's archive unless this says so"},
		service.Key{Name: "connect.file.delim", Kind: service.String, Default: "+", Doc: "the sink's file.delim"},
		service.Key{Name: "connect.values", Kind: service.String, Default: string(connect.Registry), OneOf: connect.Encodings,
			Doc: "what bytes values are given: registry (wire format, id of the subject's version that encodes the same), register (the same, and what is missing is registered), avro (without an id), json, raw (strings and bytes), auto (raw where possible, else registry)"},
		service.Key{Name: "connect.keys", Kind: service.String, Default: string(connect.Auto), OneOf: connect.Encodings, Doc: "the same for keys that the sink stored as Avro"},
		service.Key{Name: "connect.value.subject", Kind: service.String, Default: "{topic}-value", Doc: "subject of values; {topic} and {record} (the schema's full name) are filled in"},
		service.Key{Name: "connect.key.subject", Kind: service.String, Default: "{topic}-key", Doc: "subject of keys"},
		service.Key{Name: "connect.timestamp.field", Kind: service.String,
			Doc: "field of the values that holds the record's timestamp, which the sink does not keep; names with dots for nested fields; empty: records have none"},
		service.Key{Name: "connect.tombstones", Kind: service.String, Default: connect.RefuseTombstones, OneOf: []string{connect.RefuseTombstones, connect.IgnoreTombstones},
			Doc: "what to do where the sink stored tombstones, whose places among the other records are not kept: refuse the partition, or ignore them"},
	)
}

// places are the stores of a replayer and what is in them.
type places struct {
	records store.Store
	ours    store.Store // jobs; records again where there is no other
	arch    *archive.Archive
	foreign *connect.Source // nil where the records are ours
}

// openPlaces opens what the settings name. Errors name the setting; what was opened is closed by close, also after an error.
func openPlaces(ctx context.Context, c *service.Config) (p *places, err error) {
	p = &places{}
	if p.records, err = storeurl.Open(ctx, c.String("store")); err != nil {
		return p, fmt.Errorf("store: %w", err)
	}
	p.ours = p.records
	if address := c.String("jobs.store"); address != "" {
		if p.ours, err = storeurl.Open(ctx, address); err != nil {
			p.ours = p.records
			return p, fmt.Errorf("jobs.store: %w", err)
		}
	}
	if c.String("store.layout") != layoutConnect {
		p.arch = archive.Open(p.records, c.String("topics.dir"))
		return p, nil
	}
	if c.String("jobs.store") == "" {
		return p, errors.New("jobs.store: with store.layout connect say where jobs are to be kept (the archive's own address allows them there, below _tapedeck/)")
	}
	cfg := connect.Config{TopicsDir: c.String("topics.dir"), FileDelim: c.String("connect.file.delim"),
		Values: connect.Encoding(c.String("connect.values")), Keys: connect.Encoding(c.String("connect.keys")),
		ValueSubject: c.String("connect.value.subject"), KeySubject: c.String("connect.key.subject"),
		TimestampField: c.String("connect.timestamp.field"), Tombstones: c.String("connect.tombstones")}
	if url := c.String("schema.registry.url"); url != "" {
		user, password, _ := strings.Cut(c.String("schema.registry.basic.auth.user.info"), ":")
		if cfg.Schemas, err = schema.NewRegistry(schema.Config{URL: url, User: user, Password: password, CAFile: c.String("schema.registry.ssl.ca.location"),
			CertFile: c.String("schema.registry.ssl.certificate.location"), KeyFile: c.String("schema.registry.ssl.key.location"), Token: c.String("schema.registry.bearer.auth.token")}); err != nil {
			return p, err // it begins with the setting
		}
	}
	if p.foreign, err = connect.New(p.records, cfg); err != nil {
		return p, err // it begins with the setting
	}
	p.arch = archive.Open(p.ours, c.String("topics.dir"))
	return p, nil
}

// check asks at the start whether the stores are what they should be.
func (p *places) check(ctx context.Context, f *service.Frame) error {
	if p.foreign == nil && p.ours == p.records {
		return f.AtStart(ctx, "store", func(ctx context.Context) error { return checkStore(ctx, p.arch) })
	}
	// Jobs need what an archive needs of a store: creates that are refused where something is, and listings in order.
	if err := f.AtStart(ctx, "jobs.store", func(ctx context.Context) error { return permanent(archive.Probe(ctx, p.ours)) }); err != nil {
		return err
	}
	return f.AtStart(ctx, "store", func(ctx context.Context) error {
		if p.foreign != nil {
			return permanent(p.foreign.Check(ctx))
		}
		return checkStore(ctx, p.arch)
	})
}

func (p *places) close() error {
	var err error
	if p.ours != nil && p.ours != p.records {
		err = p.ours.Close()
	}
	if p.records != nil {
		err = errors.Join(p.records.Close(), err)
	}
	return err
}

// permanent marks an error that waiting does not help.
func permanent(err error) error {
	if errors.Is(err, store.ErrInvalid) || errors.Is(err, archive.ErrForeign) || errors.Is(err, archive.ErrOtherDir) {
		return service.Permanent(err)
	}
	return err
}
