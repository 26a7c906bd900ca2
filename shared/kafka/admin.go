package kafka

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
)

const (
	// adminBound bounds an admin call whose context has no deadline.
	adminBound = 30 * time.Second
	// describeChunk is the number of topics that one request describes.
	describeChunk = 500
	// pollInterval is the pause between two looks at the cluster while waiting for a change to be visible.
	pollInterval = 50 * time.Millisecond
	// refusalPatience is how long brokers must refuse a connection before it is believed that they always will.
	refusalPatience = 2 * time.Second
)

// Admin reads and changes topics. Safe for concurrent use.
type Admin struct {
	a *kafka.AdminClient
	// p carries a's connections, though nothing is ever produced: a client for administration alone shows no error events, and so
	// not why a broker lets nobody in.
	p         *kafka.Producer
	bootstrap string
	security  kafka.ConfigMap
	logs      <-chan struct{}
	tokens    *refresher
	events    chan struct{} // closed when the last event has been seen
	closing   sync.Once
	groups    groupReader

	mu      sync.Mutex
	last    error         // of the connections since the last success; nil: none
	refused *SettingError // since the last success
	since   time.Time     // of refused
}

// NewAdmin makes an Admin; it does not wait for a broker (see Ping).
func NewAdmin(cfg Client) (*Admin, error) {
	m, err := cfg.config()
	var tokens tokenSource
	if err == nil {
		tokens, err = cfg.override(m, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("configure kafka admin client: %w", err)
	}
	m["go.delivery.reports"] = false
	m["go.produce.channel.size"] = 1
	m["go.events.channel.size"] = 16
	p, err := kafka.NewProducer(&m)
	if err != nil {
		return nil, wrap(err, "configure kafka admin client")
	}
	ac, err := kafka.NewAdminClientFromProducer(p)
	if err != nil {
		p.Close()
		return nil, wrap(err, "configure kafka admin client")
	}
	a := &Admin{a: ac, p: p, bootstrap: cfg.Bootstrap, security: m, logs: forwardLogs(p.Logs(), cfg.logger()), events: make(chan struct{}),
		groups: groupReader{cfg: cfg}}
	go a.watch()
	a.tokens = startRefresher(p, tokens, cfg.logger(), func(err error) {
		a.note(err, &SettingError{Name: "sasl.oauthbearer", Err: err})
	})
	return a, nil
}

// watch takes the events of the connections until Close.
func (a *Admin) watch() {
	defer close(a.events)
	for ev := range a.p.Events() {
		if e, ok := ev.(kafka.Error); ok {
			a.note(e, securityError(e, a.security))
		}
	}
}

// note keeps the last error of the connections.
func (a *Admin) note(err error, about *SettingError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if errorCode(err) != kafka.ErrAllBrokersDown || a.last == nil { // which only sums up
		a.last = err
	}
	if about == nil {
		return
	}
	if a.refused == nil {
		a.since = time.Now()
	}
	a.refused = about
}

// reason returns the last error of the connections, and the setting that it is about where they have been refused for long enough to
// believe it: of many brokers one may be wrong, and one that is starting may not know its users yet.
func (a *Admin) reason() (about *SettingError, last error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused != nil && a.refused.Final && time.Since(a.since) < refusalPatience {
		return nil, a.last
	}
	return a.refused, a.last
}

// Close frees connections.
func (a *Admin) Close() {
	a.closing.Do(func() {
		a.groups.close()
		a.tokens.close()
		a.a.Close()
		a.p.Close()
		<-a.events
		<-a.logs
	})
}

// Ping waits until a broker answers, at most until ctx ends: ErrUnreachable. Where brokers refuse the connection for a reason that a
// setting cures it does not wait for long: a *SettingError, with ErrUnauthorized where the credentials are refused.
func (a *Admin) Ping(ctx context.Context) error {
	for {
		// Short slices, so that the end of ctx is seen soon; a slice that timed out costs nothing, the connection goes on.
		_, err := a.a.GetMetadata(nil, false, 500)
		if err == nil {
			a.mu.Lock()
			a.last, a.refused = nil, nil
			a.mu.Unlock()
			return nil
		}
		if k := kindOfCode(errorCode(err)); k != ErrUnreachable {
			return wrap(err, "reach kafka at %s", a.bootstrap)
		}
		about, last := a.reason()
		if about != nil && (about.Final || ctx.Err() != nil) {
			return &SettingError{Name: about.Name, Err: fmt.Errorf("reach kafka at %s: %w", a.bootstrap, about.Err), Final: about.Final}
		}
		if last != nil {
			err = last // says more
		}
		select {
		case <-ctx.Done():
			if about != nil {
				continue
			}
			return fmt.Errorf("reach kafka at %s (check bootstrap.servers, security.protocol and the broker): %w: %w: %w",
				a.bootstrap, ErrUnreachable, ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}

// reachable waits for a broker where the connections have failed since the last success. A request that is queued while no broker is up makes librdkafka connect
// anew at every failure of a connection, without a pause, and goes on to do so when its caller has given up, until its own time-out: some of them keep a
// processor busy. A look for metadata does not.
func (a *Admin) reachable(ctx context.Context) error {
	if _, last := a.reason(); last == nil {
		return nil
	}
	return a.Ping(ctx)
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, adminBound)
}

// ClusterID returns the cluster's id.
func (a *Admin) ClusterID(ctx context.Context) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return "", err
	}
	id, err := a.a.ClusterID(ctx)
	if err != nil {
		return "", wrap(err, "ask %s for the cluster id", a.bootstrap)
	}
	return id, nil
}

// Brokers returns how many brokers the cluster has now.
func (a *Admin) Brokers(ctx context.Context) (int, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return 0, err
	}
	deadline, _ := ctx.Deadline()
	md, err := a.a.GetMetadata(nil, false, int(max(time.Until(deadline), time.Millisecond).Milliseconds()))
	if err != nil {
		return 0, wrap(err, "ask %s for its brokers", a.bootstrap)
	}
	return len(md.Brokers), nil
}

// Topic describes one topic.
type Topic struct {
	Name       string
	ID         string // base64 uuid of 22 characters as Kafka prints it; "" where the broker has no topic ids
	Partitions int32
	Internal   bool
}

// Topics describes topics by name; all where names is empty. A named topic that is not there is left out of the answer.
func (a *Admin) Topics(ctx context.Context, names ...string) (map[string]Topic, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	if len(names) == 0 {
		var err error
		if names, err = a.topicNames(ctx); err != nil {
			return nil, err
		}
	}
	return describeTopics(ctx, a.a, names)
}

func (a *Admin) topicNames(ctx context.Context) ([]string, error) {
	deadline, _ := ctx.Deadline()
	md, err := a.a.GetMetadata(nil, true, int(max(time.Until(deadline), time.Millisecond).Milliseconds()))
	if err != nil {
		return nil, wrap(err, "list topics")
	}
	names := make([]string, 0, len(md.Topics))
	for name := range md.Topics {
		names = append(names, name)
	}
	sort.Strings(names)
	return names, nil
}

// describeTopics works on any client's connections.
func describeTopics(ctx context.Context, a *kafka.AdminClient, names []string) (map[string]Topic, error) {
	out := make(map[string]Topic, len(names))
	err := eachDescription(ctx, a, names, func(t kafka.TopicDescription) error {
		switch t.Error.Code() {
		case kafka.ErrNoError:
		case kafka.ErrUnknownTopicOrPart, kafka.ErrUnknownTopic:
			return nil
		default:
			return wrap(t.Error, "describe topic %s", t.Name)
		}
		out[t.Name] = Topic{Name: t.Name, ID: uuidString(t.TopicID), Partitions: int32(len(t.Partitions)), Internal: t.IsInternal}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func eachDescription(ctx context.Context, a *kafka.AdminClient, names []string, f func(kafka.TopicDescription) error) error {
	for len(names) > 0 {
		chunk := names[:min(len(names), describeChunk)]
		names = names[len(chunk):]
		res, err := a.DescribeTopics(ctx, kafka.NewTopicCollectionOfTopicNames(chunk))
		if err != nil {
			return wrap(err, "describe topics")
		}
		for _, t := range res.TopicDescriptions {
			if err := f(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// uuidString prints a topic id as Kafka does: base64 for URLs without padding. (librdkafka's own text uses the standard
// alphabet, which differs in two letters.)
func uuidString(u kafka.UUID) string {
	if u.GetMostSignificantBits() == 0 && u.GetLeastSignificantBits() == 0 {
		return ""
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(u.GetMostSignificantBits()))
	binary.BigEndian.PutUint64(b[8:], uint64(u.GetLeastSignificantBits()))
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// TopicConfig returns a topic's configuration (non-default and default values).
func (a *Admin) TopicConfig(ctx context.Context, topic string) (map[string]string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return nil, err
	}
	res, err := a.a.DescribeConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: topic}})
	if err != nil {
		return nil, wrap(err, "read configuration of topic %s", topic)
	}
	if len(res) == 0 {
		return nil, fmt.Errorf("read configuration of topic %s: empty answer", topic)
	}
	if err := res[0].Error; err.Code() != kafka.ErrNoError {
		return nil, wrap(err, "read configuration of topic %s", topic)
	}
	out := make(map[string]string, len(res[0].Config))
	for k, v := range res[0].Config {
		out[k] = v.Value
	}
	return out, nil
}

// CreateTopic creates a topic and waits until its leaders answer. ErrExists. replication ≤ 0: the broker's default.
func (a *Admin) CreateTopic(ctx context.Context, name string, partitions int32, replication int, config map[string]string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return err
	}
	if replication <= 0 {
		replication = -1
	}
	res, err := a.a.CreateTopics(ctx, []kafka.TopicSpecification{{
		Topic: name, NumPartitions: int(partitions), ReplicationFactor: replication, Config: config,
	}})
	if err := topicResult(res, err, "create topic "+name); err != nil {
		return err
	}
	return a.awaitLeaders(ctx, name, partitions)
}

// CreatePartitions grows a topic to n partitions and waits until their leaders answer.
func (a *Admin) CreatePartitions(ctx context.Context, topic string, n int32) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return err
	}
	res, err := a.a.CreatePartitions(ctx, []kafka.PartitionsSpecification{{Topic: topic, IncreaseTo: int(n)}})
	if err := topicResult(res, err, fmt.Sprintf("grow topic %s to %d partitions", topic, n)); err != nil {
		return err
	}
	return a.awaitLeaders(ctx, topic, n)
}

// DeleteTopic deletes a topic and waits until it is no longer described.
func (a *Admin) DeleteTopic(ctx context.Context, name string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := a.reachable(ctx); err != nil {
		return err
	}
	res, err := a.a.DeleteTopics(ctx, []string{name})
	if err := topicResult(res, err, "delete topic "+name); err != nil {
		return err
	}
	return await(ctx, "wait for topic "+name+" to be gone", func() (bool, error) {
		ts, err := describeTopics(ctx, a.a, []string{name})
		return err == nil && len(ts) == 0, err
	})
}

func topicResult(res []kafka.TopicResult, err error, action string) error {
	if err != nil {
		return wrap(err, "%s", action)
	}
	for _, r := range res {
		if r.Error.Code() != kafka.ErrNoError {
			return wrap(r.Error, "%s", action)
		}
	}
	return nil
}

// awaitLeaders waits until a topic has n partitions whose leaders answer. Right after a creation some brokers may not know
// the topic yet.
func (a *Admin) awaitLeaders(ctx context.Context, topic string, n int32) error {
	return await(ctx, "wait for the leaders of topic "+topic, func() (bool, error) {
		leaders := int32(0)
		err := eachDescription(ctx, a.a, []string{topic}, func(t kafka.TopicDescription) error {
			for _, p := range t.Partitions {
				if p.Leader != nil && p.Leader.ID >= 0 {
					leaders++
				}
			}
			return nil
		})
		if err != nil || leaders < n {
			return false, err
		}
		tps := make([]TP, n)
		for i := range tps {
			tps[i] = TP{Topic: topic, Partition: int32(i)}
		}
		_, err = listOffsets(ctx, a.a, tps, kafka.LatestOffsetSpec)
		return err == nil, err
	})
}

// await asks until the answer is yes or ctx ends. An error of f ends it, unless retry is given and says that the error will
// pass; without retry every error counts as "not yet". The last error is told at the end.
func await(ctx context.Context, action string, f func() (bool, error), retry ...func(error) bool) error {
	for {
		ok, err := f()
		if ok {
			return nil
		}
		if err != nil && len(retry) > 0 && !retry[0](err) {
			return fmt.Errorf("%s: %w", action, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", action, errors.Join(ctx.Err(), err))
		case <-time.After(pollInterval):
		}
	}
}
