package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"tapedeck.dev/tapedeck/processor/live"
	"tapedeck.dev/tapedeck/processor/pipeline"
	"tapedeck.dev/tapedeck/processor/runtime"
	"tapedeck.dev/tapedeck/processor/schemas"
	"tapedeck.dev/tapedeck/processor/sessions"
	"tapedeck.dev/tapedeck/shared/kafka"
	"tapedeck.dev/tapedeck/shared/schema"
	"tapedeck.dev/tapedeck/shared/service"
)

// wired is what the settings make.
type wired struct {
	admin   *kafka.Admin
	runtime *runtime.Runtime
}

func (w *wired) close() { w.admin.Close() }

// wire checks the settings against the world, naming the setting where they do not hold.
func wire(ctx context.Context, f *service.Frame) (*wired, error) {
	c := f.Config
	pipelines, err := readPipelines(c.List("pipelines"))
	if err != nil {
		return nil, err
	}
	lookup, err := registry(ctx, f, pipelines)
	if err != nil {
		return nil, err
	}
	consumer, producer := client(f, "consumer"), client(f, "producer")
	admin, err := kafka.NewAdmin(client(f, ""))
	if err != nil {
		return nil, err
	}
	if err := f.AtStart(ctx, "bootstrap.servers", admin.Ping); err != nil {
		admin.Close()
		return nil, err
	}
	instance := c.String("instance.id")
	if instance == "" {
		if instance, err = defaultInstance(c.String("rest.listen")); err != nil {
			admin.Close()
			return nil, fmt.Errorf("instance.id: %w", err)
		}
	}
	ms := func(key string) time.Duration { return time.Duration(c.Int(key)) * time.Millisecond }
	f.MaxBody = max(c.Int("session.max.segment.bytes"), 64<<20)
	rt, err := runtime.New(pipelines, func(p *pipeline.Pipeline) live.Config {
		return live.Config{
			Pipeline: p, Consumer: consumer, Producer: producer, Admin: admin, Lookup: lookup,
			GroupPrefix: c.String("group.prefix"), InstanceID: instance,
			CommitInterval: ms("commit.interval.ms"), CommitRecords: int(c.Int("commit.records")),
			TxRecords: int(c.Int("transaction.max.records")), TxBytes: c.Int("transaction.max.bytes"), MaxStateBytes: c.Int("state.max.bytes"), MetadataInterval: ms("metadata.interval.ms"),
			TxTimeout: ms("transaction.timeout.ms"), SessionTimeout: ms("session.timeout.ms"),
			StartLatest: c.String("start") == "latest", Replication: int(c.Int("replication.factor")), Log: f.Log,
		}
	}, sessions.Config{
		Consumer: consumer, Producer: producer, Admin: admin, Lookup: lookup, GroupPrefix: c.String("group.prefix"),
		MaxStateBytes: c.Int("session.max.bytes"), MaxSegmentBytes: c.Int("session.max.segment.bytes"), MaxUploadBytes: c.Int("session.max.upload.bytes"),
		CommitInterval: ms("commit.interval.ms"), CommitRecords: int(c.Int("commit.records")),
		TxRecords: int(c.Int("transaction.max.records")), TxBytes: c.Int("transaction.max.bytes"), TxTimeout: ms("transaction.timeout.ms"),
		Replication: int(c.Int("replication.factor")), Log: f.Log,
	})
	if err != nil {
		admin.Close()
		return nil, fmt.Errorf("pipelines: %w", err)
	}
	return &wired{admin, rt}, nil
}

func readPipelines(files []string) ([]*pipeline.Pipeline, error) {
	if len(files) == 0 {
		return nil, errors.New("pipelines: name at least one pipeline file")
	}
	var ps []*pipeline.Pipeline
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("pipelines: %w", err)
		}
		p, err := pipeline.Parse(file, data)
		if err != nil {
			return nil, fmt.Errorf("pipelines: %w", err)
		}
		ps = append(ps, p)
	}
	if err := runtime.CheckDistinct(ps); err != nil {
		return nil, fmt.Errorf("pipelines: %w", err)
	}
	return ps, nil
}

// registry connects to the schema registry where a pipeline needs one.
func registry(ctx context.Context, f *service.Frame, ps []*pipeline.Pipeline) (schemas.Lookup, error) {
	url := f.Config.String("schema.registry.url")
	needs := ""
	for _, p := range ps {
		for _, s := range p.Source {
			if s.Format == pipeline.Avro {
				needs = p.Name
			}
		}
	}
	switch {
	case url == "" && needs != "":
		return nil, fmt.Errorf("schema.registry.url: pipeline %s reads avro; set the registry's address", needs)
	case url == "":
		return nil, nil
	}
	user, password, _ := strings.Cut(f.Config.String("schema.registry.basic.auth.user.info"), ":")
	r, err := schema.NewRegistry(schema.Config{URL: url, User: user, Password: password, CAFile: f.Config.String("schema.registry.ssl.ca.location"),
		CertFile: f.Config.String("schema.registry.ssl.certificate.location"), KeyFile: f.Config.String("schema.registry.ssl.key.location"), Token: f.Config.String("schema.registry.bearer.auth.token")})
	if err != nil {
		return nil, err // it begins with the setting
	}
	if err := f.AtStart(ctx, "schema.registry.url", r.Ping); err != nil {
		return nil, err
	}
	return r.ByID, nil
}

// client makes a connection's settings; role is consumer, producer or "" (admin).
func client(f *service.Frame, role string) kafka.Client {
	return kafka.Client{Bootstrap: f.Config.String("bootstrap.servers"), ClientID: "tapedeck-processor", Overrides: f.Config.ClientOverrides(role), Log: f.Log}
}

// defaultInstance is the same after a restart on the same host and port.
func defaultInstance(listen string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("rest.listen %q: %w", listen, err)
	}
	if port == "0" {
		return "", errors.New("rest.listen takes a free port, so that no name follows from it; set instance.id")
	}
	return host + "-" + port, nil
}
